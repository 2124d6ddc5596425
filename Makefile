# appstated: make build, make demo, make test; make help lists the rest.

SHELL = /bin/sh
PREFIX ?= /usr/local
DESTDIR ?=

bindir = $(PREFIX)/bin
libexecdir = $(PREFIX)/libexec
datadir = $(PREFIX)/share
unitdir = $(PREFIX)/lib/systemd/system
userunitdir = $(PREFIX)/lib/systemd/user
catalogdir = $(PREFIX)/lib/systemd/catalog
presetdir = $(PREFIX)/lib/systemd/system-preset
userpresetdir = $(PREFIX)/lib/systemd/user-preset
sysusersdir = $(PREFIX)/lib/sysusers.d
mandir = $(datadir)/man
apparmordir = /etc/apparmor.d
autostartdir = /etc/xdg/autostart
extensiondir = $(datadir)/gnome-shell/extensions/appstate@appstate1.org
# The system bus does not read policies below /usr/local.
ifeq ($(PREFIX),/usr)
policydir = $(datadir)/dbus-1/system.d
else
policydir = /etc/dbus-1/system.d
endif

# GNOME=43 selects the variant of the extension for GNOME 43 and 44; any later version selects the variant for 45 and
# newer. Without it, the installed GNOME Shell decides; if there is none, the newer variant is used.
GNOME ?=

# WERROR=1 makes errors of warnings, and of imports that Package.swift does not declare.
SWIFT_FLAGS ?=
ifeq ($(WERROR),1)
# If this make was started by another one, the flags are already there. Flags that appear twice would cause everything
# to be compiled again.
ifeq ($(findstring -warnings-as-errors,$(SWIFT_FLAGS)),)
override SWIFT_FLAGS += -Xswiftc -warnings-as-errors --explicit-target-dependency-import-check error
endif
endif
export SWIFT_FLAGS

# With Swift's library linked in, the daemon starts faster and stays smaller. It needs no toolchain on the machine that
# runs it, and loads no library from its own directory. So is the C++ library that Swift's needs, because its relocations
# take a quarter of the daemon's start; without libstdc++.a, it is loaded as usual. Small code leaves fewer pages locked in
# memory. No program loads plugins that would need its symbols.
cxx = $(CURDIR)/.build/c++
release = mkdir -p $(cxx) && ln -sf "$$(cc -print-file-name=libstdc++.a)" $(cxx) && \
    swift build -c release --static-swift-stdlib --disable-local-rpath -Xswiftc -Osize -Xlinker --no-export-dynamic \
    -Xlinker -L$(cxx) -Xswiftc -Xclang-linker -Xswiftc -static-libgcc $(SWIFT_FLAGS)
products = .build/release

.PHONY: all build release deb demo demo-shell test test-repeat test-sanitizers test-apps test-launches test-figures test-unsaved test-system test-debian13 bars lint format bench \
    bench-windows bench-pressure docs install install-library install-gnome install-kwin uninstall clean help

build:
	@scripts/setup build
	$(release)

all: build

# build, on a machine that has everything that the build needs.
release:
	$(release)

# Debian packages, in .build/deb; scripts/deb -h describes the option for the version.
deb:
	@scripts/setup build deb
	@scripts/deb $(DEB_FLAGS)

demo: setup-demo
	@scripts/demo

demo-shell: setup-demo
	@scripts/demo --shell

.PHONY: setup-demo
setup-demo:
	@scripts/setup demo
	$(release)

# make test TEST_FLAGS='--filter NAME'
test:
	@scripts/setup test
	@scripts/test $(TEST_FLAGS)

# make test-repeat RUNS=10 BUSY=4: all tests ten times, every second time beside four busy processes.
test-repeat:
	@scripts/setup test
	@RUNS=$(RUNS) BUSY=$(BUSY) scripts/repeat-tests $(TEST_FLAGS)

# The library's tests, with the address and the thread sanitizer.
test-sanitizers:
	@scripts/setup test
	@scripts/test-sanitizers

# What users see, part by part, in at most ten minutes. BARS='kills state' for some; scripts/bars --list describes them.
bars:
	@scripts/setup few-apps
	$(release)
	@scripts/bars $(BARS)

lint:
	@scripts/lint

format:
	swift format --in-place --recursive Sources Tests Benchmarks Examples packaging Package.swift

# Real, unmodified applications, as root; writes docs/applications.md. APPS='firefox gimp' for some of them.
test-apps:
	@scripts/setup apps
	$(release)
	@scripts/test-apps $(APPS)

# Launches their desktop entries; writes its section of that page. CASES='mousepad htop' for some of them.
test-launches:
	@scripts/setup apps
	$(release)
	@scripts/test-apps --launches $(CASES)

# The savings and the cost of suspension: Firefox with ten tabs, and twenty applications at rest; writes its section.
test-figures:
	@scripts/setup apps
	$(release)
	@scripts/test-apps --figures

# Memory really runs short, and applications with unsaved work are ended last; writes its section of that page.
test-unsaved:
	@scripts/setup apps
	$(release)
	@scripts/test-apps --unsaved

# The package on real systems, in a container and a virtual machine. SYSTEM_FLAGS='container' for one of them;
# scripts/test-system -h describes the options.
test-system: deb
	@scripts/setup system
	@scripts/test-system $(SYSTEM_FLAGS)

# What a new user does on a bare Debian 13, with its own compiler, and its packages; scripts/debian13 -h describes it.
test-debian13:
	@scripts/setup debian13
	@scripts/debian13 test

# Applications are built with Swift's libraries beside them.
applications = .build/applications

bench: build
	@for program in appstate-bare appstate-living; do \
	    swift build -c release --scratch-path $(applications) --product $$program >&2 || exit 1; \
	done
	@APPSTATED_APPLICATIONS=$(applications)/release $(products)/appstate-bench

# Each installed desktop, with the release builds of the programs.
bench-windows: build
	@scripts/setup test
	@said=$$(mktemp) && trap 'rm -f "$$said"' EXIT && \
	{ APPSTATED_FIGURES=1 APPSTATED_PROGRAMS=$(CURDIR)/$(products) scripts/test --filter WindowFigures >"$$said" || \
	    { tail -n 40 "$$said" >&2; exit 1; }; } && sed -n '/^|/p;/^$$/p' "$$said"

# The library's documentation, in .build/docs; a warning is an error.
docs:
	@scripts/setup build
	@scripts/docs

# In virtual machines. BENCH_FLAGS='--rounds 1 --scene C --only appstated'; scripts/bench-pressure -h describes them.
bench-pressure:
	@scripts/setup vm
	$(release)
	@scripts/bench-pressure $(BENCH_FLAGS)

install:
	@for program in appstated appstatectl appstate-session appstate-entries appstate-transfer; do \
	    [ -x $(products)/$$program ] || { echo "make install: run make first" >&2; exit 1; }; \
	done
	install -D -m 755 $(products)/appstated $(DESTDIR)$(libexecdir)/appstated
	install -D -m 755 $(products)/appstatectl $(DESTDIR)$(bindir)/appstatectl
	install -D -m 755 $(products)/appstate-session $(DESTDIR)$(libexecdir)/appstate-session
	install -D -m 755 $(products)/appstate-entries $(DESTDIR)$(libexecdir)/appstate-entries
	install -D -m 755 $(products)/appstate-transfer $(DESTDIR)$(libexecdir)/appstate-transfer
	install -D -m 644 dbus/org.appstate1.conf $(DESTDIR)$(policydir)/org.appstate1.conf
	install -d $(DESTDIR)$(datadir)/dbus-1/system-services $(DESTDIR)$(unitdir)
	umask 022; sed 's|/usr/libexec/|$(libexecdir)/|' dbus/org.appstate1.service \
	    >$(DESTDIR)$(datadir)/dbus-1/system-services/org.appstate1.service
	umask 022; sed 's|/usr/libexec/|$(libexecdir)/|' systemd/appstated.service \
	    >$(DESTDIR)$(unitdir)/appstated.service
	umask 022; sed 's|/usr/libexec/|$(libexecdir)/|' systemd/appstated-release.service \
	    >$(DESTDIR)$(unitdir)/appstated-release.service
	install -m 644 systemd/appstated-release.target $(DESTDIR)$(unitdir)/appstated-release.target
	install -D -m 644 systemd/appstated.catalog $(DESTDIR)$(catalogdir)/appstated.catalog
	install -D -m 644 systemd/appstated.sysusers $(DESTDIR)$(sysusersdir)/appstated.conf
	install -D -m 644 systemd/90-appstated.preset $(DESTDIR)$(presetdir)/90-appstated.preset
	install -D -m 644 systemd/90-appstated.preset $(DESTDIR)$(userpresetdir)/90-appstated.preset
	install -D -m 644 apparmor/base.d/appstated $(DESTDIR)$(apparmordir)/abstractions/base.d/appstated
	umask 022; sed 's|/usr/libexec/|$(libexecdir)/|' apparmor/usr.libexec.appstated \
	    >$(DESTDIR)$(apparmordir)/usr.libexec.appstated
	for page in man/*.[1-8]; do \
	    install -D -m 644 $$page $(DESTDIR)$(mandir)/man$${page##*.}/$${page##*/}; \
	done
	install -d $(DESTDIR)$(userunitdir) $(DESTDIR)$(autostartdir) $(DESTDIR)$(datadir)/applications
	umask 022; sed 's|/usr/libexec/|$(libexecdir)/|' systemd/user/appstate-session.service \
	    >$(DESTDIR)$(userunitdir)/appstate-session.service
	umask 022; sed 's|/usr/libexec/|$(libexecdir)/|' systemd/user/appstate-transfer.service \
	    >$(DESTDIR)$(userunitdir)/appstate-transfer.service
	for type in scope service; do \
	    install -D -m 644 systemd/user/app-.$$type.conf $(DESTDIR)$(userunitdir)/app-.$$type.d/50-appstate.conf; \
	done
	install -d $(DESTDIR)$(datadir)/dbus-1/services
	umask 022; sed 's|/usr/libexec/|$(libexecdir)/|' dbus/org.appstate1.Transfer.service \
	    >$(DESTDIR)$(datadir)/dbus-1/services/org.appstate1.Transfer.service
	umask 022; sed 's|/usr/libexec/|$(libexecdir)/|' systemd/user/appstate-session.desktop \
	    >$(DESTDIR)$(autostartdir)/appstate-session.desktop
	install -D -m 644 packaging/appstated.portal $(DESTDIR)$(datadir)/xdg-desktop-portal/portals/appstated.portal
	install -m 644 $(DESTDIR)$(autostartdir)/appstate-session.desktop $(DESTDIR)$(datadir)/applications
	umask 022; mkdir -p $(DESTDIR)/etc/sway/config.d; sed 's|/usr/libexec/|$(libexecdir)/|' systemd/user/sway.conf \
	    >$(DESTDIR)/etc/sway/config.d/60-appstate.conf
	@# Keep what the administrator has written there.
	[ -e $(DESTDIR)/etc/appstated/appstated.conf ] || install -D -m 644 systemd/appstated.conf \
	    $(DESTDIR)/etc/appstated/appstated.conf
	[ -e $(DESTDIR)/etc/appstated/session.conf ] || install -D -m 644 systemd/session.conf \
	    $(DESTDIR)/etc/appstated/session.conf
	@$(MAKE) --no-print-directory install-gnome install-kwin
	install -d $(DESTDIR)$(datadir)/dbus-1/interfaces
	install -m 644 dbus/org.appstate1.*.xml $(DESTDIR)$(datadir)/dbus-1/interfaces
	install -d $(DESTDIR)$(datadir)/bash-completion/completions \
	    $(DESTDIR)$(datadir)/zsh/site-functions $(DESTDIR)$(datadir)/fish/vendor_completions.d
	umask 022; $(products)/appstatectl --generate-completion-script bash | sed '1{/^#!/d;}' \
	    >$(DESTDIR)$(datadir)/bash-completion/completions/appstatectl
	umask 022; $(products)/appstatectl --generate-completion-script zsh \
	    >$(DESTDIR)$(datadir)/zsh/site-functions/_appstatectl
	umask 022; $(products)/appstatectl --generate-completion-script fish \
	    >$(DESTDIR)$(datadir)/fish/vendor_completions.d/appstatectl.fish
	@[ -n "$(DESTDIR)" ] || echo 'Now, as root: systemd-sysusers; systemctl daemon-reload;' \
	    'systemctl reload dbus; journalctl --update-catalog;' \
	    'systemctl enable --now appstated; systemctl --global enable appstate-session appstate-transfer'

install-gnome:
	@version=$(GNOME); \
	[ -n "$$version" ] || version=$$(gnome-shell --version 2>/dev/null | sed 's/[^0-9]*\([0-9]*\).*/\1/'); \
	case $$version in 43 | 44) form=43 ;; *) form=45 ;; esac; set -x; umask 022; \
	install -D -m 644 gnome/$$form/metadata.json $(DESTDIR)$(extensiondir)/metadata.json && \
	cat gnome/$$form/extension.js gnome/windows.js >$(DESTDIR)$(extensiondir)/extension.js

install-kwin:
	install -D -m 644 kwin/windows.js $(DESTDIR)$(datadir)/appstated/kwin/windows.js

# The sources of the library, as a package that needs only libsystemd's headers. An application names it by
# .package(name: "appstated", path: "$(datadir)/appstate/swift").
install-library:
	@for module in AppState AppStateBus AppStateContract CAppState CSystemd; do \
	    find Sources/$$module -type f | while read -r file; do \
	        install -D -m 644 "$$file" "$(DESTDIR)$(datadir)/appstate/swift/$$file" || exit 1; \
	    done || exit 1; \
	done
	install -D -m 644 packaging/Package.swift $(DESTDIR)$(datadir)/appstate/swift/Package.swift

# Keeps the configuration, the saved states and the user.
uninstall:
	rm -f $(DESTDIR)$(libexecdir)/appstated $(DESTDIR)$(bindir)/appstatectl \
	    $(DESTDIR)$(policydir)/org.appstate1.conf \
	    $(DESTDIR)$(datadir)/dbus-1/system-services/org.appstate1.service \
	    $(DESTDIR)$(unitdir)/appstated.service $(DESTDIR)$(unitdir)/appstated-release.service \
	    $(DESTDIR)$(unitdir)/appstated-release.target \
	    $(DESTDIR)$(catalogdir)/appstated.catalog \
	    $(DESTDIR)$(sysusersdir)/appstated.conf \
	    $(DESTDIR)$(presetdir)/90-appstated.preset $(DESTDIR)$(userpresetdir)/90-appstated.preset \
	    $(DESTDIR)$(apparmordir)/usr.libexec.appstated $(DESTDIR)$(apparmordir)/abstractions/base.d/appstated \
	    $(DESTDIR)$(libexecdir)/appstate-session $(DESTDIR)$(libexecdir)/appstate-entries \
	    $(DESTDIR)$(libexecdir)/appstate-transfer \
	    $(DESTDIR)$(userunitdir)/appstate-session.service \
	    $(DESTDIR)$(userunitdir)/appstate-transfer.service \
	    $(DESTDIR)$(userunitdir)/app-.scope.d/50-appstate.conf \
	    $(DESTDIR)$(userunitdir)/app-.service.d/50-appstate.conf \
	    $(DESTDIR)$(datadir)/dbus-1/services/org.appstate1.Transfer.service \
	    $(DESTDIR)$(autostartdir)/appstate-session.desktop $(DESTDIR)/etc/sway/config.d/60-appstate.conf \
	    $(DESTDIR)$(datadir)/applications/appstate-session.desktop \
	    $(DESTDIR)$(datadir)/xdg-desktop-portal/portals/appstated.portal \
	    $(DESTDIR)$(datadir)/bash-completion/completions/appstatectl \
	    $(DESTDIR)$(datadir)/zsh/site-functions/_appstatectl \
	    $(DESTDIR)$(datadir)/fish/vendor_completions.d/appstatectl.fish
	rm -rf $(DESTDIR)$(extensiondir) $(DESTDIR)$(datadir)/appstated $(DESTDIR)$(datadir)/appstate
	for file in dbus/org.appstate1.*.xml; do \
	    rm -f $(DESTDIR)$(datadir)/dbus-1/interfaces/$${file##*/}; \
	done
	for page in man/*.[1-8]; do rm -f $(DESTDIR)$(mandir)/man$${page##*.}/$${page##*/}; done
	@[ -n "$(DESTDIR)" ] || echo 'Now, as root: systemctl daemon-reload; systemctl reload dbus;' \
	    'journalctl --update-catalog. This remains: the configuration in /etc/appstated; what the daemon has' \
	    'saved in /var/lib/appstated; the user appstated; until the next boot, the loaded AppArmor profile' \
	    'appstated; the enabled units, unless you have run systemctl disable --now appstated and' \
	    'systemctl --global disable appstate-session appstate-transfer.'

clean:
	rm -rf .build

help:
	@echo 'make             build the daemon, the session agent and appstatectl (release, Swift inside)'
	@echo 'make demo        build, then watch real processes change state on a private bus'
	@echo 'make demo-shell  a shell on that bus, to try by hand'
	@echo "make test        build and run the tests (TEST_FLAGS='--filter NAME')"
	@echo 'make test-repeat the tests ten times, five beside four busy processes (RUNS=10 BUSY=4)'
	@echo "make test-apps   real applications on a desktop without a screen, as root (APPS='firefox gimp')"
	@echo "make test-launches   their desktop entries, launched (CASES='mousepad htop')"
	@echo 'make test-figures  Firefox and twenty applications, suspended: time, wake-ups, repaint, as root'
	@echo 'make test-unsaved  memory runs short: unsaved work is ended last, as root'
	@echo "make bars        what users see, a line for each part, in ten minutes, as root (BARS='kills state')"
	@echo 'make lint        check the form of the sources and the scripts, and the links'
	@echo 'make format      bring the sources into that form'
	@echo 'make test-system the package on real systems: containers, a virtual machine (SYSTEM_FLAGS=--help)'
	@echo 'make test-debian13  build, demonstration, tests and packages in a bare Debian 13, with its own compiler'
	@echo 'make bench       run the benchmarks'
	@echo 'make bench-windows  what a change of focus takes, on each desktop that is here'
	@echo 'make bench-pressure  memory runs short in virtual machines (BENCH_FLAGS=--help)'
	@echo "make docs        the library's documentation, in .build/docs"
	@echo 'make deb         Debian packages, in .build/deb'
	@echo 'make install     install below PREFIX ($(PREFIX)), in DESTDIR; uninstall takes it back'
	@echo "make install-library  the sources of the library for applications in Swift"
	@echo 'make install-gnome  the extension for GNOME Shell alone (GNOME=43 or 45; else by the one that is here)'
	@echo 'make install-kwin  the script for KWin alone'
	@echo 'make clean       remove what was built'
	@echo 'WERROR=1         makes warnings errors, as CI does'
