// GNOME 45 and newer: an ECMAScript module. windows.js follows.

import Gio from 'gi://Gio';
import GLib from 'gi://GLib';
import Shell from 'gi://Shell';

import {Extension} from 'resource:///org/gnome/shell/extensions/extension.js';
import * as Main from 'resource:///org/gnome/shell/ui/main.js';

export default class AppStateExtension extends Extension {
    enable() {
        this._report = new WindowReport();
    }

    // In unlock-dialog too: what has a window has it while the screen is locked, and the daemon knows of the lock.
    disable() {
        this._report.destroy();
        this._report = null;
    }
}

