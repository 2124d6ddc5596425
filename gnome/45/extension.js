// For GNOME 45 and newer: an ECMAScript module. windows.js follows.

import Gio from 'gi://Gio';
import GLib from 'gi://GLib';
import Shell from 'gi://Shell';

import {Extension} from 'resource:///org/gnome/shell/extensions/extension.js';
import * as Main from 'resource:///org/gnome/shell/ui/main.js';

export default class AppStateExtension extends Extension {
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

