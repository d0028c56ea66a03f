// SPDX-License-Identifier: Apache-2.0
//
// Interface tensors as images. vkdt's pictures are textures, a network's tensors are
// storage buffers: a node before the network copies one into the other, a node after
// it does the reverse. This file determines the axes of height, width and channel, the
// source of the network's variables, and the two shaders, in GLSL for vkdt's Makefile.
//
// The default shaders pass values unchanged: red, green, blue and alpha are channels
// 0 to 3; a tensor larger than its picture replicates the last rows and columns.
#include "export/export_vkdt.h"

static bool bad_io(const struct plan_io *io, struct err *e, const char *what)
{
    return err_set(e, ERR_UNSUPPORTED, "interface '%.*s' %s", STR_ARG(io->name), what);
}

const char *vkdt_format(enum dtype t)
{
    if (t == DT_F16) return "f16";
    if (t == DT_F32) return "f32";
    return t == DT_U8 ? "u8" : NULL;
}

/* Axes, from the layout's name or from the rank alone. */
static bool find_axes(struct vkdt_image *m, const struct plan *p, const struct plan_io *io,
                      struct err *e)
{
    const sym *d = io->dim;
    sym c = 0;
    i64 n;
    if (str_is(io->layout, "HWC") && io->rank == 3) {
        m->layout = IMAGE_HWC, m->h = d[0], m->w = d[1], c = d[2];
    } else if (str_is(io->layout, "CHWC8") && io->rank == 4) {
        m->layout = IMAGE_CHWC8, m->h = d[1], m->w = d[2], c = d[0];
    } else if (io->rank == 3 || io->rank == 4) {
        m->layout = IMAGE_CHW, m->h = d[io->rank - 2], m->w = d[io->rank - 1];
        c = d[io->rank - 3];
    } else {
        return bad_io(io, e, "is no image: vkdt needs height, width and channels");
    }
    if (!sym_is_const(&p->sym, c, &n) || n < 1 || n > 1 << 16)
        return bad_io(io, e, "has channels whose number is not a constant");
    m->c = m->layout == IMAGE_CHWC8 ? 8 * n : n;
    if (io->rank == 4 && m->layout == IMAGE_CHW && sym_is_const(&p->sym, d[0], &n) && n != 1)
        return bad_io(io, e, "holds several images");
    return true;
}

bool vkdt_image_of(struct vkdt_image *m, const struct plan *p, const struct plan_io *io,
                   struct err *e)
{
    *m = (struct vkdt_image){.dtype = io->dtype};
    if (!vkdt_format(io->dtype))
        return err_set(e, ERR_UNSUPPORTED, "interface '%.*s' is %s, vkdt supports f16, f32 and u8",
                       STR_ARG(io->name), dtype_name(io->dtype));
    return find_axes(m, p, io, e);
}

static bool is_var(const struct plan *p, sym s, u32 v)
{
    return p->sym.node.v[s].op == SYM_VAR && p->sym.node.v[s].a == v;
}

/* The axis of input k that is variable v; 0: none. */
static u8 axis_of(const struct vkdt_model *m, u32 k, u32 v)
{
    const struct plan_io *io = &m->plan->input.v[k];
    if (is_var(m->plan, m->in[k].h, v)) return 'H';
    if (is_var(m->plan, m->in[k].w, v)) return 'W';
    return io->rank == 4 && m->in[k].layout == IMAGE_CHW && is_var(m->plan, io->dim[0], v) ? 'N'
                                                                                           : 0;
}

bool vkdt_bind_vars(struct vkdt_model *m, struct arena *a, struct err *e)
{
    const struct plan *p = m->plan;
    m->var_axis = arena_array(a, u8, p->sym.var.n);
    m->var_input = arena_array(a, u32, p->sym.var.n);
    for (u32 v = 0; v < p->sym.var.n; v++) {
        for (u32 k = 0; k < p->input.n && !m->var_axis[v]; k++) {
            m->var_axis[v] = axis_of(m, k, v);
            m->var_input[v] = k;
        }
        if (!m->var_axis[v])
            return err_set(e, ERR_UNSUPPORTED, "size '%.*s' is neither height nor width of an image",
                           STR_ARG(p->sym.var.v[v]));
    }
    return true;
}

/* Shaders. */

static const char *element(enum dtype t)
{
    if (t == DT_F16) return "float16_t";
    return t == DT_U8 ? "uint8_t" : "float";
}

static void print_head(struct buf *b, const struct vkdt_image *m, const char *what)
{
    static const char *const order[] = {"channel by channel", "pixel by pixel",
                                        "eight channels by eight, pixel by pixel"};
    buf_printf(b, "#version 460\n// %s: %lld channels of %s, %s\n", what, (long long)m->c,
               dtype_name(m->dtype), order[m->layout]);
    buf_z(b, "#extension GL_GOOGLE_include_directive : enable\n");
    if (m->dtype == DT_F16)
        buf_z(b, "#extension GL_EXT_shader_explicit_arithmetic_types_float16 : enable\n");
    if (m->dtype == DT_U8)
        buf_z(b, "#extension GL_EXT_shader_explicit_arithmetic_types_int8 : enable\n");
    buf_z(b,
          "#include \"localsize.h\"\n"
          "layout(local_size_x = DT_LOCAL_SIZE_X, local_size_y = DT_LOCAL_SIZE_Y) in;\n"
          "layout(push_constant, std430) uniform push_t { int wd, ht; } push; // of the tensor\n");
}

static void print_index(struct buf *b, const struct vkdt_image *m)
{
    buf_z(b, "int at(ivec2 p, int c)\n{\n  return ");
    switch (m->layout) {
    case IMAGE_CHW: buf_z(b, "(c * push.ht + p.y) * push.wd + p.x"); break;
    case IMAGE_HWC: buf_printf(b, "%lld * (p.y * push.wd + p.x) + c", (long long)m->c); break;
    case IMAGE_CHWC8: buf_z(b, "8 * ((c / 8 * push.ht + p.y) * push.wd + p.x) + c % 8"); break;
    }
    buf_z(b, ";\n}\n\n");
}

void vkdt_input_shader(struct buf *b, const struct vkdt_image *m)
{
    print_head(b, m, "a picture becomes the network's input");
    buf_printf(b,
               "layout(set = 1, binding = 0) uniform sampler2D img_in;\n"
               "layout(std430, set = 1, binding = 1) writeonly buffer tensor_t { %s v[]; } tensor;"
               "\n\n",
               element(m->dtype));
    print_index(b, m);
    buf_printf(b,
               "void main()\n{\n"
               "  ivec2 p = ivec2(gl_GlobalInvocationID);\n"
               "  if(p.x >= push.wd || p.y >= push.ht) return;\n"
               "  vec4 rgba = texelFetch(img_in, min(p, textureSize(img_in, 0) - 1), 0);\n"
               "  for(int c=0;c<%lld;c++)\n",
               (long long)m->c);
    if (m->dtype == DT_F16)
        buf_z(b, "    tensor.v[at(p, c)] = float16_t(clamp(rgba[c], -65504.0, 65504.0));\n}\n");
    else if (m->dtype == DT_U8)
        buf_z(b, "    tensor.v[at(p, c)] = uint8_t(clamp(rgba[c], 0.0, 1.0) * 255.0 + 0.5);\n}\n");
    else buf_z(b, "    tensor.v[at(p, c)] = rgba[c];\n}\n");
}

void vkdt_output_shader(struct buf *b, const struct vkdt_image *m)
{
    print_head(b, m, "the network's output becomes a picture");
    buf_printf(b,
               "layout(std430, set = 1, binding = 0) readonly buffer tensor_t { %s v[]; } tensor;\n"
               "layout(set = 1, binding = 1) uniform writeonly image2D img_out;\n\n",
               element(m->dtype));
    print_index(b, m);
    buf_printf(b,
               "void main()\n{\n"
               "  ivec2 p = ivec2(gl_GlobalInvocationID);\n"
               "  if(p.x >= push.wd || p.y >= push.ht) return;\n"
               "  vec4 rgba = vec4(0.0, 0.0, 0.0, 1.0);\n"
               "  for(int c=0;c<%lld;c++) rgba[c] = float(tensor.v[at(p, c)])%s;\n",
               (long long)m->c, m->dtype == DT_U8 ? " / 255.0" : "");
    if (m->c == 1) buf_z(b, "  rgba.gb = rgba.rr;\n");
    buf_z(b, "  imageStore(img_out, p, rgba);\n}\n");
}
