// SPDX-License-Identifier: Apache-2.0
//
// lang_tool: compilers and other tools that languages run as programs. Private to this folder.
#ifndef QUERN_LANG_TOOL_H
#define QUERN_LANG_TOOL_H

#include "lang/lang.h"

struct lang_tool {
    const char *program; /* its name in messages */
    const char *hint;    /* advice if it cannot be run: "install spirv-tools"; NULL: none */
    double timeout;      /* seconds */
};

/* lang_tool.c: runs argv (NULL-terminated; looked up in PATH).
   Its output goes to said, and into the error on failure. */
bool lang_tool_run(const struct lang_tool *t, const char *const *argv, struct buf *said, struct err *e);

/* Runs a program that converts a file to a file, in a private folder that is removed afterwards.
   The words "@in" and "@out" of argv become the paths of files with these names; temporary files of
   the program are in the folder, too, because it may be killed. Without out_name the result is its
   output. */
struct lang_convert {
    const char *const *argv;
    const char *in_name, *out_name; /* "k.cu"; suffixes matter to compilers */
    struct str in;
};
bool lang_tool_convert(struct buf *out, const struct lang_tool *t, const struct lang_convert *c, struct err *e);

/* The first of n programs that is there, by its path or in PATH; NULL: none. */
const char *lang_tool_first(struct arena *a, const char *const *program, i64 n);
/* The last non-empty line of its output, or the first. */
bool lang_tool_line(struct buf *out, const struct lang_tool *t, const char *const *argv, bool is_last, struct err *e);

#endif
