#pragma once

// The functions of GLib and GIO that we call, as their headers declare them. The headers are not included: SwiftPM
// warns in each build of an option that pkg-config returns for them (-pthread).

#include <stdint.h>

typedef struct _GAppInfo GAppInfo;
typedef struct _GDesktopAppInfo GDesktopAppInfo;
typedef struct _GFile GFile;
typedef struct _GFileInfo GFileInfo;
typedef struct _GKeyFile GKeyFile;

typedef struct _GList {
    void *data;
    struct _GList *next, *prev;
} GList;

typedef struct _GError {
    uint32_t domain;
    int code;
    char *message;
} GError;

// Memory
void g_free(void *memory);
void g_strfreev(char **strings);
void g_error_free(GError *error);
void g_object_unref(void *object);

// Desktop entries. Each GDesktopAppInfo is a GAppInfo.
GList *g_app_info_get_all(void);
GDesktopAppInfo *g_desktop_app_info_new(const char *id);
const char *g_app_info_get_id(GDesktopAppInfo *info);
const char *g_app_info_get_name(GDesktopAppInfo *info);
const char *g_app_info_get_commandline(GDesktopAppInfo *info);
const char *g_desktop_app_info_get_filename(GDesktopAppInfo *info);
int g_desktop_app_info_get_boolean(GDesktopAppInfo *info, const char *key);
char *g_desktop_app_info_get_string(GDesktopAppInfo *info, const char *key);
char *g_desktop_app_info_get_locale_string(GDesktopAppInfo *info, const char *key);
char **g_desktop_app_info_get_string_list(GDesktopAppInfo *info, const char *key, unsigned long *length);

// Default applications
GDesktopAppInfo *g_app_info_get_default_for_type(const char *type, int must_support_uris);
GDesktopAppInfo *g_app_info_get_default_for_uri_scheme(const char *scheme);
GFile *g_file_new_for_path(const char *path);
GFileInfo *g_file_query_info(GFile *file, const char *attributes, int flags, void *cancellable, GError **error);
const char *g_file_info_get_content_type(GFileInfo *info);

// Files, command lines and programs
GKeyFile *g_key_file_new(void);
void g_key_file_free(GKeyFile *file);
int g_key_file_load_from_data_dirs(
    GKeyFile *file, const char *name, char **full_path, int flags, GError **error);
char *g_key_file_get_string(GKeyFile *file, const char *group, const char *key, GError **error);
int g_key_file_get_boolean(GKeyFile *file, const char *group, const char *key, GError **error);
int g_shell_parse_argv(const char *line, int *count, char ***words, GError **error);
char *g_find_program_in_path(const char *program);
