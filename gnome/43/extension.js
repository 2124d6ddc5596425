// For GNOME 43 and 44: the variant without ECMAScript modules. windows.js follows.

/* exported init */

const {Gio, GLib, Shell} = imports.gi;
const Main = imports.ui.main;

class Extension {
    enable() {
        this._report = new WindowReport();
    }

    // The extension stays enabled in unlock-dialog: applications keep their windows while the screen is locked, and the
    // daemon knows about the lock.
    disable() {
        this._report.destroy();
        this._report = null;
    }
}

function init() {
    return new Extension();
}

