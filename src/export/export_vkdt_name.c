// SPDX-License-Identifier: Apache-2.0
//
// Names in vkdt: 8 characters, packed into an integer. A module's name is the name of its folder
// and of its shared object, and a word in graph files where ':' separates and '_' joins words.
#include "export/export_vkdt.h"

#include <string.h>

static bool is_small(char c) { return c >= 'a' && c <= 'z'; }
static bool is_letter(char c) { return is_small(c) || (c >= 'A' && c <= 'Z'); }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_vowel(char c) { return c && strchr("aeiouAEIOU", c); }

/* Reserved names: in vkdt's own code, and "i-" and "o-" for readers and writers;
   and kernels of such a name could be confused with shaders of an input or output. */
static bool is_taken(struct str s)
{
    static const char *const whole[] = {"display", "thumb", "bvh", "shared"};
    static const char *const start[] = {"i-", "o-", "input", "output"};
    bool taken = false;
    for (i64 k = 0; k < countof(whole); k++) taken |= str_is(s, whole[k]);
    for (i64 k = 0; k < countof(start); k++) taken |= str_starts(s, str_of(start[k]));
    return taken;
}

static void drop(char *z, size_t at) { memmove(z + at, z + at + 1, strlen(z + at)); }

bool vkdt_module_name(char out[VKDT_TOKEN + 1], struct str name, struct err *e)
{
    char z[64];
    bool ok = name.n > 0 && name.n < (i64)sizeof z && is_letter(name.p[0]);
    for (i64 i = 0; ok && i < name.n; i++)
        ok = is_letter(name.p[i]) || is_digit(name.p[i]) || name.p[i] == '-';
    if (!ok)
        return err_set(e, ERR_USAGE,
                       "'%.*s' is not a valid module name: a letter, then letters, digits and dashes",
                       STR_ARG(name));
    if (is_taken(name))
        return err_set(e, ERR_USAGE, "module name '%.*s' is reserved in vkdt",
                       STR_ARG(name));
    memcpy(z, name.p, (size_t)name.n);
    z[name.n] = 0;
    for (size_t i = strlen(z); i-- > 1 && strlen(z) > VKDT_TOKEN;)
        if (z[i] == '-') drop(z, i);
    for (size_t i = strlen(z); i-- > 1 && strlen(z) > VKDT_TOKEN;)
        if (is_vowel(z[i])) drop(z, i);
    if (strlen(z) > VKDT_TOKEN)
        return err_set(e, ERR_USAGE, "module name '%.*s' is too long, vkdt supports %d characters",
                       STR_ARG(name), VKDT_TOKEN);
    memcpy(out, z, strlen(z) + 1);
    return true;
}

bool vkdt_suffix(char out[VKDT_TOKEN + 1], struct str name, struct err *e)
{
    enum { MAX = 5 }; /* leaves three digits to kernels */
    bool ok = name.n > 0 && name.n <= MAX && !is_taken(name);
    for (i64 i = 0; ok && i < name.n; i++) ok = is_small(name.p[i]);
    if (!ok)
        return err_set(e, ERR_USAGE, "'%.*s' is not a valid suffix: at most %d lower-case letters", STR_ARG(name),
                       MAX);
    memcpy(out, name.p, (size_t)name.n);
    out[name.n] = 0;
    return true;
}

static u32 n_digits(u32 k) { return k < 10 ? 1 : 1 + n_digits(k / 10); }

struct str vkdt_kernel_name(struct arena *a, const char *prefix, u32 k, u32 n_kernels)
{
    int room = VKDT_TOKEN - (int)n_digits(n_kernels ? n_kernels - 1 : 0);
    return str_fmt(a, "%.*s%u", room, prefix, k);
}
