// SPDX-License-Identifier: Apache-2.0
//
// Reports KWin's windows to the session agent on the session bus, where KWin does not grant the agent
// org_kde_plasma_window_management. The agent loads this script and puts two lines before it: AGENT, its connection,
// and SCRIPT, the name by which KWin knows this script. dbus/org.appstate1.Windows.xml describes the calls that the
// script makes. For KWin 5.27 and 6.

const NAME = 'org.appstate1.Windows';
const PATH = '/org/appstate1/Windows';
const DRIVER = 'org.freedesktop.DBus';

/** The most windows, and the longest text, that the agent reads. */
const MOST_WINDOWS = 1024;
const LONGEST_TEXT = 255;

/** How long to wait for an answer before asking whether the agent is there, doubled each time; in milliseconds. */
const PATIENCE = 5000;
const LONGEST_PATIENCE = 60000;

// KWin 5 calls windows clients, and has numbers of desktops where KWin 6 has desktop objects.
const isSix = typeof workspace.windowList === 'function';
const list = () => isSix ? workspace.windowList() : workspace.clientList();
const windowSignals = [
    'activeChanged', 'minimizedChanged', 'skipTaskbarChanged', 'desktopFileNameChanged', 'windowClassChanged',
    isSix ? 'desktopsChanged' : 'desktopChanged',
];

let isAwaited = false;
let isStale = false;

/** Everything that happens before KWin waits for events again is one change. */
const soon = timer(0, tell);
/** KWin reports neither errors nor answers that exceed Qt's timeout: only a call that succeeds calls back. */
const doubt = timer(PATIENCE, ask);

function timer(span, action) {
    const made = new QTimer();
    made.singleShot = true;
    made.interval = span;
    made.timeout.connect(action);
    return made;
}

function change() {
    if (!soon.active)
        soon.start();
}

/** Sends the next set when the agent has taken the last one, so an agent that does not read is not flooded. */
function tell() {
    isStale = isAwaited;
    if (isAwaited)
        return;
    const rows = list().filter(isOurs).slice(0, MOST_WINDOWS).map(row);
    callDBus(AGENT, PATH, NAME, 'ReplaceWindows', JSON.stringify(rows), () => goOn(isStale));
    isAwaited = true;
    doubt.interval = PATIENCE;
    doubt.start();
}

function goOn(isOther) {
    doubt.stop();
    isAwaited = false;
    if (isOther)
        tell();
}

/** A stopped agent answers when it continues. If it was killed, the script unloads itself, as nothing else would. */
function ask() {
    doubt.interval = Math.min(2 * doubt.interval, LONGEST_PATIENCE);
    doubt.start();
    callDBus(AGENT, PATH, `${DRIVER}.Peer`, 'Ping', () => goOn(true));
    callDBus(DRIVER, '/org/freedesktop/DBus', DRIVER, 'NameHasOwner', AGENT, isThere => {
        if (isThere)
            return;
        doubt.stop();
        callDBus('org.kde.KWin', '/Scripting', 'org.kde.kwin.Scripting', 'unloadScript', SCRIPT);
    });
}

/** Excludes menus, tooltips and similar windows, which the window manager does not manage. */
function isOurs(window) {
    return window.managed && !window.deleted && !window.popupWindow;
}

/** In the order of the interface. */
function row(window) {
    return [
        number(window),
        Math.max(window.pid, 0),
        text(window.desktopFileName) || text(window.resourceClass),
        text(window.caption),
        window.active,
        window.minimized,
        window.onAllDesktops,
        isHere(window),
        window.skipTaskbar,
    ];
}

/** The first 48 bits of a random UUID (RFC 9562, version 4), all of them random. */
function number(window) {
    const parts = /([0-9a-f]{8})-([0-9a-f]{4})/i.exec(String(window.internalId));
    return parseInt(parts[1] + parts[2], 16);
}

function isHere(window) {
    if (window.onAllDesktops)
        return true;
    if (!isSix)
        return window.x11DesktopIds.indexOf(workspace.currentDesktop) >= 0;
    const current = workspace.currentDesktop.id;
    return window.desktops.some(desktop => desktop.id === current);
}

function text(words) {
    // Without half of a surrogate pair at the end. KWin 5 gives bytes instead of a string in some places.
    return String(words || '').slice(0, LONGEST_TEXT).replace(/[\uD800-\uDBFF]$/, '');
}

function welcome(window) {
    for (const name of windowSignals)
        window[name].connect(change);
}

list().forEach(welcome);
workspace[isSix ? 'windowAdded' : 'clientAdded'].connect(window => {
    welcome(window);
    change();
});
workspace[isSix ? 'windowRemoved' : 'clientRemoved'].connect(change);
workspace[isSix ? 'windowActivated' : 'clientActivated'].connect(change);
workspace.currentDesktopChanged.connect(change);
// Reports at once: if no report has come when KWin says that the script has run, none will come.
tell();
