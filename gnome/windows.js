// The common part of both variants of the extension: it provides GNOME Shell's windows on the session bus, as
// dbus/org.appstate1.Shell.xml describes. Gio, GLib, Shell and Main are imported before.

const NAME = 'org.appstate1.Shell';
const PATH = '/org/appstate1/Shell';
const INTERFACE = `<node><interface name="${NAME}">
<method name="ListWindows"><arg name="windows" type="a(tussbbb)" direction="out"/></method>
<method name="Minimize"><arg name="windows" type="at" direction="in"/></method>
<method name="Activate"><arg name="windows" type="at" direction="in"/></method>
<signal name="Changed"/>
</interface></node>`;

/** The most windows, and the longest text, that the session agent reads. */
const MOST_WINDOWS = 1024;
const LONGEST_TEXT = 255;

class WindowReport {
    constructor() {
        this._windows = new Set();
        this._isTold = false;
        const changed = () => this._tell();
        for (const actor of global.get_window_actors())
            this._welcome(actor.get_meta_window());
        global.display.connectObject(
            'window-created', (_display, window) => {
                this._welcome(window);
                this._tell();
            },
            'notify::focus-window', changed, this);
        global.workspace_manager.connectObject(
            'active-workspace-changed', changed,
            'showing-desktop-changed', changed, this);
        Shell.WindowTracker.get_default().connectObject('tracked-windows-changed', changed, this);
        this._object = Gio.DBusExportedObject.wrapJSObject(INTERFACE, this);
        this._object.export(Gio.DBus.session, PATH);
        this._name = Gio.DBus.session.own_name(NAME, Gio.BusNameOwnerFlags.NONE, null, null);
    }

    destroy() {
        Gio.DBus.session.unown_name(this._name);
        this._object.unexport();
        Shell.WindowTracker.get_default().disconnectObject(this);
        global.workspace_manager.disconnectObject(this);
        global.display.disconnectObject(this);
        for (const window of this._windows)
            window.disconnectObject(this);
        this._windows.clear();
    }

    /** The method: all windows as they are now. */
    ListWindows() {
        this._isTold = false;
        const workspace = global.workspace_manager.get_active_workspace();
        const rows = [...this._windows].slice(0, MOST_WINDOWS).map(window => row(window, workspace));
        return new GLib.Variant('(a(tussbbb))', [rows]);
    }

    /** The method: minimizes windows. It skips those that are gone. */
    Minimize(numbers) {
        for (const window of this._windows) {
            if (numbers.includes(window.get_id()))
                window.minimize();
        }
    }

    /** The method: brings windows to the front, the last one foremost. It skips those that are gone. */
    Activate(numbers) {
        for (const number of numbers) {
            for (const window of this._windows) {
                if (window.get_id() === number)
                    Main.activateWindow(window, global.display.get_current_time_roundtrip());
            }
        }
    }

    /** Sends the signal once, and again only after ListWindows: a client that does not read is not flooded. */
    _tell() {
        if (this._isTold)
            return;
        this._isTold = true;
        this._object.emit_signal('Changed', null);
    }

    _welcome(window) {
        // Menus, tooltips and similar windows of X11, which the window manager does not manage.
        if (window.is_override_redirect() || this._windows.has(window))
            return;
        this._windows.add(window);
        const changed = () => this._tell();
        window.connectObject(
            'unmanaged', () => {
                window.disconnectObject(this);
                this._windows.delete(window);
                this._tell();
            },
            'notify::minimized', changed,
            'notify::on-all-workspaces', changed,
            'workspace-changed', changed,
            'notify::wm-class', changed,
            'notify::gtk-application-id', changed, this);
    }
}

/** In the order of the interface: number, process, application, title, focused, visible, minimized. */
function row(window, workspace) {
    return [
        window.get_id(),
        Math.max(window.get_pid(), 0),
        text(applicationOf(window)),
        text(window.get_title()),
        global.display.focus_window === window,
        // Also false in “show desktop”, and while a window that it belongs to is minimized.
        window.located_on_workspace(workspace) && window.showing_on_its_workspace(),
        window.minimized,
    ];
}

/** The id of the desktop file, or else the id that the window states. */
function applicationOf(window) {
    const application = Shell.WindowTracker.get_default().get_window_app(window);
    if (application && !application.is_window_backed())
        return application.get_id().replace(/\.desktop$/, '');
    return window.get_sandboxed_app_id() ?? window.get_gtk_application_id() ?? window.get_wm_class();
}

function text(words) {
    // Without half of a surrogate pair at the end.
    return (words ?? '').slice(0, LONGEST_TEXT).replace(/[\uD800-\uDBFF]$/, '');
}
