// SPDX-License-Identifier: Apache-2.0
//
// Files of rows: comma-separated values (RFC 4180, without line breaks in fields), a line of names first. A file's header belongs to the
// first dialect that has all its names: this project's, or one of a few of other tools, in which the same word may have another meaning
// ("InputDepth" is a size in one and the number of channels in another). A missing number without default is an error; if a file states
// outputs that differ from the convolution's, a warning is issued.
#include "lab/conv.h"
#include "lab/csv.h"

#include <string.h>

enum { MAX_FILE = 1 << 24 };

/* Content of a column. Lists come first, a number per axis counted from depth: field = list * CONV_AXES + axis. */
enum list { L_SIZE, L_KERNEL, L_STRIDE, L_BEGIN, L_END, L_DILATION, L_OUTPUT_PAD, L_OUTPUT, N_LISTS };
enum field { F_LISTS = N_LISTS * CONV_AXES, F_NAME = F_LISTS, F_BATCH, F_CHANNELS, F_GROUPS, F_OUT_CHANNELS, F_TRANSPOSED,
             F_STRIDES, F_DILATIONS /* of all axes */ };
enum { D, H, W };
#define AT(list, axis) ((list) * CONV_AXES + (axis))

struct column { const char *name; u8 field; };
struct dialect {
    const struct column *column; u32 n;
    bool zero_stride; /* 0 means the default, 1 */
};

#define EACH(prefix, list) {prefix "d", AT(list, D)}, {prefix "h", AT(list, H)}, {prefix "w", AT(list, W)}
static const struct column own[] = { /* in the order of printing, which omits outputs */
    {"name", F_NAME}, {"batch", F_BATCH}, {"channels", F_CHANNELS}, {"depth", AT(L_SIZE, D)}, {"height", AT(L_SIZE, H)}, {"width", AT(L_SIZE, W)},
    EACH("kernel_", L_KERNEL), EACH("stride_", L_STRIDE), EACH("pad_begin_", L_BEGIN), EACH("pad_end_", L_END),
    EACH("dilation_", L_DILATION), {"groups", F_GROUPS}, {"out_channels", F_OUT_CHANNELS}, {"transposed", F_TRANSPOSED},
    EACH("output_pad_", L_OUTPUT_PAD), EACH("output_", L_OUTPUT),
};
static const struct column sizes_first[] = {
    {"InChannel", F_CHANNELS}, {"InputDepth", AT(L_SIZE, D)}, {"InputHeight", AT(L_SIZE, H)}, {"InputWidth", AT(L_SIZE, W)},
    {"KernelDepth", AT(L_KERNEL, D)}, {"KernelHeight", AT(L_KERNEL, H)}, {"KernelWidth", AT(L_KERNEL, W)}, {"OutputChannel", F_OUT_CHANNELS},
    {"OutputDepth", AT(L_OUTPUT, D)}, {"OutputHeight", AT(L_OUTPUT, H)}, {"OutputWidth", AT(L_OUTPUT, W)},
};
static const struct column volumes[] = { /* depth is the number of channels, height the outermost axis */
    {"InputDepth", F_CHANNELS}, {"InputHeight", AT(L_SIZE, D)}, {"InputRow", AT(L_SIZE, H)}, {"InputColumn", AT(L_SIZE, W)},
    {"KernelDepth", AT(L_KERNEL, D)}, {"KernelRow", AT(L_KERNEL, H)}, {"KernelCol", AT(L_KERNEL, W)}, {"OutputDepth", F_OUT_CHANNELS},
    {"OutputHeight", AT(L_OUTPUT, D)}, {"OutputRow", AT(L_OUTPUT, H)}, {"OutputColumn", AT(L_OUTPUT, W)},
};
static const struct column images[] = { /* likewise */
    {"InputDepth", F_CHANNELS}, {"InputRow", AT(L_SIZE, H)}, {"InputCol", AT(L_SIZE, W)}, {"OutputDepth", F_OUT_CHANNELS},
    {"KernelRow", AT(L_KERNEL, H)}, {"KernelCol", AT(L_KERNEL, W)}, {"Stride", F_STRIDES},
};
static const struct column lines[] = { /* such files lack channels and length; columns of our own may have them */
    {"Kernel length", AT(L_KERNEL, W)}, {"Number of filters", F_OUT_CHANNELS}, {"Outputdepth", F_OUT_CHANNELS}, {"Dilation", F_DILATIONS},
    {"Stride", F_STRIDES}, {"channels", F_CHANNELS}, {"width", AT(L_SIZE, W)},
};
static const struct dialect dialects[] = {
    {own, countof(own), false}, {sizes_first, countof(sizes_first), false}, {volumes, countof(volumes), false},
    {images, countof(images), true}, {lines, countof(lines), false},
};

struct reader {
    struct conv_data *d;
    struct arena *a;
    struct err *e;
    i64 line;
    const struct dialect *dialect;
    u32 n;                        /* columns */
    struct str name[CSV_COLUMNS]; /* of columns */
    u8 field[CSV_COLUMNS];
    struct csv_line row;          /* the current one */
};

/* The header. */

static const struct column *find_column(const struct dialect *x, struct str name)
{
    for (u32 i = 0; i < x->n; i++)
        if (str_is(name, x->column[i].name)) return &x->column[i];
    return NULL;
}

/* The first column that a dialect lacks; n: none. */
static u32 first_unknown(const struct dialect *x, const struct str *name, u32 n)
{
    u32 i = 0;
    while (i < n && find_column(x, name[i])) i++;
    return i;
}

/* The dialect with the longest run of known columns, so that the error names the first unknown one. */
static bool read_header(struct reader *r, struct str line)
{
    u32 best = 0;
    if (!csv_read(&r->row, r->a, line, r->e)) return false;
    r->n = r->row.n;
    memcpy(r->name, r->row.cell, sizeof r->name);
    r->dialect = &dialects[0];
    for (i64 k = 0; k < countof(dialects); k++) {
        u32 known = first_unknown(&dialects[k], r->name, r->n);
        if (known > best) best = known, r->dialect = &dialects[k];
    }
    if (best < r->n) return err_set(r->e, ERR_INPUT, "column %u: no column is called '%.*s'", best + 1, STR_ARG(r->name[best]));
    for (u32 i = 0; i < r->n; i++) {
        r->field[i] = find_column(r->dialect, r->name[i])->field;
        for (u32 k = 0; k < i; k++)
            if (r->field[k] == r->field[i])
                return err_set(r->e, ERR_INPUT, "column %u: '%.*s' again, after column %u", i + 1, STR_ARG(r->name[i]), k + 1);
    }
    return true;
}

/* Rows. */

static bool is_digits(struct str s)
{
    for (i64 i = s.n && s.p[0] == '-'; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9') return false;
    return s.n > 0;
}

static i64 read_number(struct reader *r, u32 column)
{
    struct str s = r->row.cell[column];
    i64 v = 0;
    if (str_to_i64(s, &v) && v >= -CONV_MAX_SIZE && v <= CONV_MAX_SIZE) return v;
    const char *expected = is_digits(s) ? "a number up to 1073741824" : "a whole number";
    err_set(r->e, ERR_INPUT, "column %u (%.*s): expected %s, found '%.*s'", column + 1, STR_ARG(r->name[column]), expected,
            (int)i64_min(s.n, 60), s.p);
    return 0;
}

/* A row being read or printed: axes are counted from depth. */
struct draft {
    struct conv_row x;
    i64 output[CONV_AXES]; /* as stated in the file; 0: not stated */
};

static i64 *list_of(struct draft *d, enum list k)
{
    i64 *const list[N_LISTS] = {[L_SIZE] = d->x.size,           [L_KERNEL] = d->x.kernel,         [L_STRIDE] = d->x.stride,
                                [L_BEGIN] = d->x.pad_begin,     [L_END] = d->x.pad_end,           [L_DILATION] = d->x.dilation,
                                [L_OUTPUT_PAD] = d->x.output_pad, [L_OUTPUT] = d->output};
    return list[k];
}

/* The member for a field. */
static i64 *place_of_field(struct draft *d, u32 f)
{
    if (f < F_LISTS) return list_of(d, f / CONV_AXES) + f % CONV_AXES;
    return f == F_BATCH ? &d->x.batch : f == F_CHANNELS ? &d->x.channels : f == F_GROUPS ? &d->x.groups : &d->x.out_channels;
}

/* Axis 0 becomes the outermost existing one, or depth again. */
static void shift_axes(struct draft *d, bool to_depth)
{
    u32 n = d->x.axes, skip = CONV_AXES - n;
    for (u32 k = 0; k < N_LISTS; k++) {
        i64 *v = list_of(d, k);
        memmove(v + (to_depth ? skip : 0), v + (to_depth ? 0 : skip), n * sizeof *v);
        for (u32 i = 0; i < skip; i++) v[to_depth ? i : n + i] = 0;
    }
}

static void set_all(i64 v[CONV_AXES], i64 to)
{
    for (u32 i = 0; i < CONV_AXES; i++) v[i] = to;
}

static bool read_flag(struct reader *r, u32 column, bool *v)
{
    struct str s = r->row.cell[column];
    *v = str_is(s, "1");
    return *v || str_is(s, "0") ||
           err_set(r->e, ERR_INPUT, "column %u (%.*s): expected 0 or 1, found '%.*s'", column + 1, STR_ARG(r->name[column]),
                   (int)i64_min(s.n, 60), s.p);
}

static bool read_cell(struct reader *r, u32 column, struct draft *d)
{
    u32 f = r->field[column];
    if (f == F_NAME) d->x.name = r->row.cell[column];
    if (f == F_NAME) return true;
    if (f == F_TRANSPOSED) return read_flag(r, column, &d->x.is_transposed);
    i64 v = read_number(r, column);
    if (r->e->code) return false;
    if (f == F_STRIDES) set_all(d->x.stride, v == 0 && r->dialect->zero_stride ? 1 : v);
    else if (f == F_DILATIONS) set_all(d->x.dilation, v);
    else *place_of_field(d, f) = v;
    return true;
}

/* The column of a field; n: none, or its cell is empty. */
static u32 column_of(const struct reader *r, u32 field)
{
    u32 i = 0;
    while (i < r->n && (r->field[i] != field || !r->row.cell[i].n)) i++;
    return i;
}

static bool has(const struct reader *r, u32 field) { return column_of(r, field) < r->n; }

/* A dialect's name of a field; this project's if it has none. */
static const char *word_for(const struct reader *r, u32 field)
{
    for (u32 i = 0; i < r->dialect->n; i++)
        if (r->dialect->column[i].field == field) return r->dialect->column[i].name;
    for (i64 i = 0; i < countof(own); i++)
        if (own[i].field == field) return own[i].name;
    unreachable();
}

static bool need(const struct reader *r, u32 field)
{
    if (has(r, field)) return true;
    for (u32 i = 0; i < r->n; i++)
        if (r->field[i] == field) return err_set(r->e, ERR_INPUT, "column %u (%.*s) is empty", i + 1, STR_ARG(r->name[i]));
    return err_set(r->e, ERR_INPUT, "column '%s' is missing", word_for(r, field));
}

/* Axes are those with a size. */
static bool count_axes(const struct reader *r, struct conv_row *x)
{
    u32 first = has(r, AT(L_SIZE, D)) ? D : has(r, AT(L_SIZE, H)) ? H : W;
    for (u32 i = first; i < CONV_AXES; i++)
        if (!need(r, AT(L_SIZE, i)) || !need(r, AT(L_KERNEL, i))) return false;
    for (u32 c = 0; c < r->n; c++)
        if (r->field[c] < F_LISTS && r->field[c] % CONV_AXES < first && r->row.cell[c].n)
            return err_set(r->e, ERR_INPUT, "column %u (%.*s): '%.*s' for an axis without a size", c + 1, STR_ARG(r->name[c]),
                           STR_ARG(r->row.cell[c]));
    x->axes = CONV_AXES - first;
    return true;
}

static void compare_outputs(struct reader *r, const struct draft *d)
{
    i64 out[CONV_AXES];
    struct buf b = {0};
    bool differ = false;
    u32 n = d->x.axes;
    conv_row_outputs(&d->x, out);
    for (u32 i = 0; i < n; i++) differ |= d->output[i] && d->output[i] != out[i];
    buf_printf(&b, "line %lld: outputs are said to be", (long long)r->line);
    for (u32 i = 0; i < n; i++) buf_printf(&b, "%s%lld", i ? " x " : " ", (long long)d->output[i]);
    buf_z(&b, ", the convolution gives");
    for (u32 i = 0; i < n; i++) buf_printf(&b, "%s%lld", i ? " x " : " ", (long long)out[i]);
    if (differ) *arr_push(r->a, &r->d->note) = str_dup(r->a, buf_view(&b));
    buf_release(&b);
}

static bool read_row(struct reader *r, struct str line)
{
    struct draft d = {.x = {.batch = 1, .groups = 1}};
    set_all(d.x.stride, 1);
    set_all(d.x.dilation, 1);
    if (!csv_read(&r->row, r->a, line, r->e)) return false;
    if (r->row.n != r->n) return err_set(r->e, ERR_INPUT, "%u columns instead of %u", r->row.n, r->n);
    for (u32 i = 0; i < r->n; i++)
        if (r->row.cell[i].n && !read_cell(r, i, &d)) return false;
    if (!need(r, F_CHANNELS) || !need(r, F_OUT_CHANNELS) || !count_axes(r, &d.x)) return false;
    shift_axes(&d, false);
    if (!conv_row_check(&d.x, r->e)) return false;
    *arr_push(r->a, &r->d->row) = d.x;
    compare_outputs(r, &d);
    return true;
}

static bool read_line(struct reader *r, struct str line)
{
    r->line++;
    if (r->line == 1 && str_starts(line, S("\xef\xbb\xbf"))) line = str_sub(line, 3, line.n);
    line = str_trim(line);
    if (!line.n) return true;
    bool ok = r->dialect ? read_row(r, line) : read_header(r, line);
    return ok || err_prefix(r->e, "line %lld", (long long)r->line);
}

bool conv_read(struct conv_data *d, struct arena *a, struct str text, struct err *e)
{
    struct reader *r = arena_new(a, struct reader);
    struct str line;
    *d = (struct conv_data){0};
    r->d = d, r->a = a, r->e = e;
    for (bool more = true; more;) {
        more = str_cut(text, '\n', &line, &text);
        if (!read_line(r, line)) return false;
    }
    if (!r->dialect) return err_set(e, ERR_INPUT, "line 1: no names of columns");
    return d->row.n || err_set(e, ERR_INPUT, "line %lld: no rows", (long long)r->line);
}

/* Printing. */

static void print_cell(struct buf *b, struct draft *d, u32 f)
{
    if (f == F_NAME) csv_print(b, d->x.name);
    else if (f == F_TRANSPOSED) buf_char(b, d->x.is_transposed ? '1' : '0');
    else if (f >= F_LISTS || f % CONV_AXES >= CONV_AXES - d->x.axes) buf_printf(b, "%lld", (long long)*place_of_field(d, f));
}

void conv_print(struct buf *b, const struct conv_data *d)
{
    u32 n = countof(own) - CONV_AXES; /* without outputs */
    for (u32 i = 0; i < n; i++) buf_printf(b, "%s%s", i ? "," : "", own[i].name);
    for (u32 k = 0; k < d->row.n; k++) {
        struct draft x = {.x = d->row.v[k]};
        shift_axes(&x, true);
        for (u32 i = 0; i < n; i++) {
            buf_char(b, i ? ',' : '\n');
            print_cell(b, &x, own[i].field);
        }
    }
    buf_char(b, '\n');
}

/* Built-in data sets. */

static const struct { const char *name, *text; } built_in[] = {
#define X(name, text) {name, text},
#include "conv_data.inc"
#undef X
};

const char *conv_data_at(u32 k, struct str *text)
{
    if (k >= countof(built_in)) return NULL;
    *text = str_of(built_in[k].text);
    return built_in[k].name;
}

static bool find_built_in(const char *name, struct str *text)
{
    const char *is;
    for (u32 k = 0; (is = conv_data_at(k, text)); k++)
        if (!strcmp(is, name)) return true;
    return false;
}

static bool no_such(const char *name, struct err *e)
{
    struct buf b = {0};
    struct str text;
    const char *is;
    for (u32 k = 0; (is = conv_data_at(k, &text)); k++) buf_printf(&b, "%s%s", k ? ", " : "", is);
    err_set(e, ERR_USAGE, "no file and no data set '%s'; there are: %.*s", name, STR_ARG(buf_view(&b)));
    buf_release(&b);
    return false;
}

bool conv_data_open(struct conv_data *d, struct arena *a, const char *name_or_path, struct err *e)
{
    struct str text;
    if (!find_built_in(name_or_path, &text)) {
        if (!os_exists(name_or_path)) return no_such(name_or_path, e);
        if (!os_read(a, name_or_path, MAX_FILE, &text, e)) return false;
    }
    return conv_read(d, a, text, e) || err_prefix(e, "'%s'", name_or_path);
}
