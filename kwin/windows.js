// SPDX-License-Identifier: Apache-2.0
//
// KWin's windows on the session bus, for the session agent where KWin does not let it have
// org_kde_plasma_window_management. It is loaded by the agent, which puts two lines before it: AGENT, its connection, and
// SCRIPT, under which KWin knows this script. What it calls, dbus/org.appstate1.Windows.xml describes. For KWin 5.27 and 6.

const NAME = 'org.appstate1.Windows';
const PATH = '/org/appstate1/Windows';
const DRIVER = 'org.freedesktop.DBus';

/** What the agent reads at most, of windows and of a text. */
const MOST_WINDOWS = 1024;
const LONGEST_TEXT = 255;

/** How long an answer is waited for before the agent is asked whether it is there, doubled each time; in milliseconds. */
const PATIENCE = 5000;
const LONGEST_PATIENCE = 60000;

// KWin 6 calls windows what KWin 5 called clients, and has desktops where that had their numbers.
const isSix = typeof workspace.windowList === 'function';
const list = () => isSix ? workspace.windowList() : workspace.clientList();
const windowSignals = [
    'activeChanged', 'minimizedChanged', 'skipTaskbarChanged', 'desktopFileNameChanged', 'windowClassChanged',
    isSix ? 'desktopsChanged' : 'desktopChanged',
];

let isAwaited = false;
let isStale = false;

/** All that happens before KWin waits for events again is one change. */
const soon = timer(0, tell);
/** An error is not told of, nor that an answer has not come in Qt's time: only what succeeds calls back. */
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

/** The next when the agent has taken the last: one that does not read is not flooded. */
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

/** An agent that stands still answers when it goes on; of one that was killed nobody else would clear this away. */
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

/** Not menus, tooltips and the like, which nobody manages. */
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
    // Not half of a surrogate pair. KWin 5 has bytes here and there.
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
// At once: what has not come when KWin says that this has run does not come.
tell();
