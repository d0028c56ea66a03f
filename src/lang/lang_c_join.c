// SPDX-License-Identifier: Apache-2.0
//
// lang_c_join.c: texts of language c as one. A compiler takes longer to start than for a small kernel: of 36 ms for a function of one line, 12 link
// it and 20 are gcc's before its first pass. Functions of different kernels do not call each other, so that the code of each is the same as alone.
//
// A text is a sequence of directives, declarations and definitions, each of which begins at the first column. Those that several texts have (types,
// helpers) are left out after the first time. They are equal wherever their names are: both follow from types and target.
#include "lang/lang_text.h"

/* Cuts off the first line, without its end. */
static struct str take_line(struct str *rest)
{
    struct str line, text = *rest;
    str_cut(text, '\n', &line, rest);
    return line;
}

static bool is_closing(struct str line) { return str_is(line, "}") || str_is(line, "};"); }

/* Cuts off a directive's line, a declaration or a definition, with the end of its last line. */
static struct str take_piece(struct str *rest)
{
    struct str all = *rest, line = take_line(rest);
    bool is_line = line.n == 0 || line.p[0] == '#' || str_starts(line, S("/*")) || str_ends(line, S(";")) || str_ends(line, S("}"));
    while (!is_line && !is_closing(line) && rest->n) line = take_line(rest);
    return str_sub(all, 0, all.n - rest->n);
}

static bool is_repeatable(struct str piece) { return piece.p[0] == '\n' || (piece.p[0] == '#' && !str_starts(piece, S("#include"))); }

void c_join(struct buf *out, const struct str *text, u32 n)
{
    struct arena a = {0};
    struct map seen;
    map_init(&seen, &a);
    for (u32 i = 0; i < n; i++)
        for (struct str rest = text[i], piece; rest.n;) {
            piece = take_piece(&rest);
            if (!is_repeatable(piece) && map_get(&seen, piece)) continue;
            if (!is_repeatable(piece)) map_put(&seen, piece, 1);
            buf_str(out, piece);
        }
    arena_release(&a);
}
