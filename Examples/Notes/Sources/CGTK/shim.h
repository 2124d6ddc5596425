#pragma once

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
    return window;
}

static inline void cgtk_present(GtkWidget *window) { gtk_window_present(GTK_WINDOW(window)); }

static inline GtkTextBuffer *cgtk_buffer(GtkWidget *view) {
    return gtk_text_view_get_buffer(GTK_TEXT_VIEW(view));
}

// The caller frees the result with g_free.
static inline char *cgtk_text(GtkTextBuffer *buffer) {
    GtkTextIter begin, end;
    gtk_text_buffer_get_bounds(buffer, &begin, &end);
    return gtk_text_buffer_get_text(buffer, &begin, &end, FALSE);
}

static inline void cgtk_on(void *object, const char *signal, void (*handler)(void *, void *), void *data) {
    g_signal_connect(object, signal, G_CALLBACK(handler), data);
}

// The handler returns TRUE to keep the window until the process ends.
static inline void cgtk_on_close(GtkWidget *window, gboolean (*handler)(void *, void *), void *data) {
    g_signal_connect(window, "close-request", G_CALLBACK(handler), data);
}

static inline void cgtk_watch(int descriptor, gboolean (*handler)(int, GIOCondition, void *), void *data) {
    g_unix_fd_add(descriptor, G_IO_IN, handler, data);
}
