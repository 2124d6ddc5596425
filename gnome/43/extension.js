// GNOME 43 and 44: the form before ECMAScript modules. windows.js follows.

/* exported init */

const {Gio, GLib, Shell} = imports.gi;
const Main = imports.ui.main;

class Extension {
    enable() {
        this._report = new WindowReport();
    }

    // In unlock-dialog too: what has a window has it while the screen is locked, and the daemon knows of the lock.
    disable() {
        this._report.destroy();
        this._report = null;
    }
}

function init() {
    return new Extension();
}

