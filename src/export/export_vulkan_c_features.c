// SPDX-License-Identifier: Apache-2.0
//
// Features of Vulkan that the program's modules need, from the capabilities and float controls that
// they declare, by the lists of core/spirv_features.inc: a chain of structures to enable and tables
// to check a device by.
#include "export/export_vulkan_c.h"

#include <stdio.h>

static const struct {
    const char *member, *field;
    u32 capability;
} features[] = {
#define FEATURE(member, field, capability) {#member, #field, capability},
#include "core/spirv_features.inc"
    {"matrix", "cooperativeMatrix", SPV_CAP_MATRIX},
};

static const struct {
    const char *member, *type, *stype, *extension;
    u32 minor;
} structures[] = {
#define STRUCTURE(member, type, stype, minor, extension)                                           \
    {#member, "VkPhysicalDevice" #type, "VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_" #stype, extension,    \
     minor},
#include "core/spirv_features.inc"
    {"matrix", NULL, "(VkStructureType)1000506000", "VK_KHR_cooperative_matrix", 0},
};

static const struct {
    const char *name;
    u32 capability;
    const char *bit;
} subgroup_bits[] = {
#define SUBGROUP(name, capability, bit) {name, capability, "VK_SUBGROUP_FEATURE_" #bit},
#include "core/spirv_features.inc"
};

static const struct {
    u32 mode, width;
    const char *field;
} float_controls[] = {
#define FLOATS(mode, width, field) {mode, width, #field},
#include "core/spirv_features.inc"
};

/* Features that are enabled where the device has them. */
static bool is_optional(const struct vkc_model *m, i64 k)
{
    if (str_is(S("subgroup_size"), features[k].member)) return m->needs_subgroup_size;
    return str_is(S("subgroup_types"), features[k].member) &&
           vkc_has_capability(m, SPV_CAP_SUBGROUP);
}

static bool is_needed(const struct vkc_model *m, i64 k)
{
    return (features[k].capability && vkc_has_capability(m, features[k].capability)) ||
           is_optional(m, k);
}

static bool has_structure(const struct vkc_model *m, const char *member)
{
    for (i64 k = 0; k < countof(features); k++)
        if (is_needed(m, k) && str_is(str_of(member), features[k].member)) return true;
    return false;
}

bool vkc_check_features(const struct vkc_model *m, struct err *e)
{
    for (u32 i = 0; i < m->n_capability; i++) {
        u32 c = m->capability[i];
        bool known = c <= SPV_CAP_SHADER || c == SPV_CAP_DENORM_PRESERVE || c == SPV_CAP_KEEP_NAN ||
                     c == SPV_CAP_ROUND_EVEN;
        for (i64 k = 0; k < countof(features); k++) known |= features[k].capability == c;
        for (i64 k = 0; k < countof(subgroup_bits); k++) known |= subgroup_bits[k].capability == c;
        if (!known)
            return err_set(e, ERR_UNSUPPORTED,
                           "a kernel needs SPIR-V capability %u, which is not known", c);
    }
    for (u32 i = 0; i < m->n_floats; i++) {
        bool known = false;
        for (i64 k = 0; k < countof(float_controls); k++)
            known |= float_controls[k].mode == m->floats[i].mode &&
                     float_controls[k].width == m->floats[i].width;
        if (!known)
            return err_set(e, ERR_UNSUPPORTED,
                           "a kernel needs execution mode %u for %u bits, which is not known",
                           m->floats[i].mode, m->floats[i].width);
    }
    return true;
}

void vkc_print_members(struct buf *b, const struct vkc_model *m)
{
    for (i64 k = 0; k < countof(structures); k++) {
        if (!has_structure(m, structures[k].member)) continue;
        if (structures[k].type)
            buf_printf(b, "    %s %s;\n", structures[k].type, structures[k].member);
        else
            buf_printf(b, "    struct %s_vk_matrix_features %s;\n", m->prefix.p,
                       structures[k].member);
    }
}

u32 vkc_count_extensions(const struct vkc_model *m)
{
    u32 n = 2; /* storage classes, float controls */
    for (i64 k = 0; k < countof(structures); k++) n += has_structure(m, structures[k].member);
    return n;
}

static const char *last_word(const char *z)
{
    const char *at = z;
    for (; *z; z++)
        if (*z == '.') at = z + 1;
    return at;
}

void vkc_print_features(struct buf *b, const struct vkc_model *m)
{
    const char *p = m->prefix.p;
    buf_z(b, "static const struct link links[] = {\n");
    for (i64 k = 0; k < countof(structures); k++)
        if (has_structure(m, structures[k].member))
            buf_printf(b, "    {offsetof(struct %s_vk_device, %s), %s, %s%u%s, \"%s\"},\n", p,
                       structures[k].member, structures[k].stype,
                       structures[k].minor ? "VK_MAKE_API_VERSION(0, 1, " : "", structures[k].minor,
                       structures[k].minor ? ", 0)" : "", structures[k].extension);
    buf_z(b, "    {0, VK_STRUCTURE_TYPE_MAX_ENUM, 0, NULL},\n};\n\nstatic const struct feature "
             "features[] = {\n");
    for (i64 k = 0; k < countof(features); k++)
        if (is_needed(m, k))
            buf_printf(b, "    {\"%s\", offsetof(struct %s_vk_device, %s.%s), %d},\n",
                       last_word(features[k].field), p, features[k].member, features[k].field,
                       is_optional(m, k));
    buf_z(b, "    {NULL, 0, 0},\n};\n\nstatic const struct bit subgroup_bits[] = {\n");
    for (i64 k = 0; k < countof(subgroup_bits); k++)
        if (vkc_has_capability(m, subgroup_bits[k].capability))
            buf_printf(b, "    {\"%s\", %s},\n", subgroup_bits[k].name, subgroup_bits[k].bit);
    buf_z(b, "    {NULL, 0},\n};\n\nstatic const struct property float_controls[] = {\n");
    for (i64 k = 0; k < countof(float_controls); k++)
        for (u32 i = 0; i < m->n_floats; i++)
            if (m->floats[i].mode == float_controls[k].mode &&
                m->floats[i].width == float_controls[k].width)
                buf_printf(b,
                           "    {\"%s\", offsetof(VkPhysicalDeviceFloatControlsProperties, %s)},\n",
                           float_controls[k].field, float_controls[k].field);
    buf_z(b, "    {NULL, 0},\n};\n\n");
}

static void put_item(struct buf *b, u32 *n, const char *text)
{
    buf_printf(b, "%s%s", !*n ? "\n *   " : *n % 3 ? ", " : ",\n *   ", text);
    ++*n;
}

void vkc_print_needs(struct buf *b, const struct vkc_model *m)
{
    u32 n = 0;
    buf_printf(b, " * The device needs Vulkan 1.%u, and (%s_vk_check examines it):", m->version,
               m->prefix.p);
    for (i64 k = 0; k < countof(features); k++)
        if (is_needed(m, k) && !is_optional(m, k)) put_item(b, &n, last_word(features[k].field));
    for (i64 k = 0; k < countof(subgroup_bits); k++)
        if (vkc_has_capability(m, subgroup_bits[k].capability))
            put_item(b, &n, subgroup_bits[k].name);
    for (i64 k = 0; k < countof(float_controls); k++)
        for (u32 i = 0; i < m->n_floats; i++)
            if (m->floats[i].mode == float_controls[k].mode &&
                m->floats[i].width == float_controls[k].width)
                put_item(b, &n, float_controls[k].field);
    for (u32 i = 0; i < m->kernel.n; i++) {
        char text[60];
        bool is_new = m->kernel.v[i].subgroup != 0;
        for (u32 k = 0; k < i; k++) is_new &= m->kernel.v[k].subgroup != m->kernel.v[i].subgroup;
        snprintf(text, sizeof text, "subgroups of %u threads", m->kernel.v[i].subgroup);
        if (is_new) put_item(b, &n, text);
    }
    buf_z(b, n ? "\n" : " nothing else\n");
}
