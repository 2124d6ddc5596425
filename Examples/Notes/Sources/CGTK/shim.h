#pragma once

#include <gdk/wayland/gdkwayland.h>
#include <glib-unix.h>
#include <gtk/gtk.h>

// GTK's casts are macros, which Swift does not import, and each signal has its own handler type.

static inline GtkWidget *cgtk_window(const char *title, GtkWidget *child) {
    GtkWidget *window = gtk_window_new();
    GtkWidget *scrolled = gtk_scrolled_window_new();
    gtk_scrolled_window_set_child(GTK_SCROLLED_WINDOW(scrolled), child);
    gtk_window_set_title(GTK_WINDOW(window), title);
    gtk_window_set_default_size(GTK_WINDOW(window), 480, 320);
    gtk_window_set_child(GTK_WINDOW(window), scrolled);
    gtk_widget_realize(window);
    return window;
}

static inline void cgtk_present(GtkWidget *window) { gtk_window_present(GTK_WINDOW(window)); }

static inline void cgtk_destroy(GtkWidget *window) { gtk_window_destroy(GTK_WINDOW(window)); }

static inline GdkToplevelState cgtk_state(GtkWidget *window) {
    GdkSurface *surface = gtk_native_get_surface(GTK_NATIVE(window));
    return surface ? gdk_toplevel_get_state(GDK_TOPLEVEL(surface)) : 0;
}

// GTK's own answer is that of the keyboard, which a tablet does not have. Wayland says which window is active.
static inline gboolean cgtk_is_active(GtkWidget *window) {
    return gtk_window_is_active(GTK_WINDOW(window)) ||
           (GDK_IS_WAYLAND_DISPLAY(gtk_widget_get_display(window)) &&
            (cgtk_state(window) & GDK_TOPLEVEL_STATE_FOCUSED));
}

// Whether the window is on the screen, as far as the display server tells: X11 says when it is minimized, Wayland when
// nobody can see it, from GTK 4.12 on.
static inline gboolean cgtk_is_visible(GtkWidget *window) {
    int hidden = GDK_TOPLEVEL_STATE_MINIMIZED;
#if GTK_CHECK_VERSION(4, 12, 0)
    hidden |= GDK_TOPLEVEL_STATE_SUSPENDED;
#endif
    return gtk_widget_get_mapped(window) && !(cgtk_state(window) & hidden);
}

static inline GtkTextBuffer *cgtk_buffer(GtkWidget *view) {
    return gtk_text_view_get_buffer(GTK_TEXT_VIEW(view));
}

// The caller frees the result with g_free.
static inline char *cgtk_text(GtkTextBuffer *buffer) {
    GtkTextIter begin, end;
    gtk_text_buffer_get_bounds(buffer, &begin, &end);
    return gtk_text_buffer_get_text(buffer, &begin, &end, FALSE);
}

static inline void cgtk_on(void *object, const char *signal, void (*handler)(void *), void *data) {
    g_signal_connect_swapped(object, signal, G_CALLBACK(handler), data);
}

// One of the two above may have changed.
static inline void cgtk_on_change(GtkWidget *window, void (*handler)(void *), void *data) {
    cgtk_on(window, "map", handler, data);
    cgtk_on(window, "unmap", handler, data);
    cgtk_on(window, "notify::is-active", handler, data);
    cgtk_on(gtk_native_get_surface(GTK_NATIVE(window)), "notify::state", handler, data);
}

// The handler returns TRUE to keep the window.
static inline void cgtk_on_close(GtkWidget *window, gboolean (*handler)(void *, void *), void *data) {
    g_signal_connect(window, "close-request", G_CALLBACK(handler), data);
}

// Control and this key.
static inline void cgtk_on_key(
    GtkWidget *window, const char *key, gboolean (*handler)(GtkWidget *, GVariant *, void *), void *data) {
    GtkEventController *controller = gtk_shortcut_controller_new();
    gtk_shortcut_controller_add_shortcut(
        GTK_SHORTCUT_CONTROLLER(controller),
        gtk_shortcut_new(gtk_shortcut_trigger_parse_string(key), gtk_callback_action_new(handler, data, NULL)));
    gtk_widget_add_controller(window, controller);
}

static inline void cgtk_watch(int descriptor, gboolean (*handler)(int, GIOCondition, void *), void *data) {
    g_unix_fd_add(descriptor, G_IO_IN, handler, data);
}
