# SPDX-License-Identifier: Apache-2.0
#
# A program in C that runs the layers of one of MLPerf Tiny's networks by CMSIS-NN's functions for 8 bits, one after another, with weights of no meaning: what
# TensorFlow Lite for Microcontrollers executes on Cortex-M, without its interpreter. For bench/embedded.py.

VWW = [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (128, 1), (128, 1), (128, 1),
       (128, 1), (256, 2), (256, 1)]
DENSE = [640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640]


class Program:
    def __init__(self):
        self.data, self.calls, self.n, self.most = [], [], 0, 0

    def array(self, kind, name, values):
        values = list(values)
        self.data.append(f"static const {kind} {name}{self.n}[{len(values)}] = {{{','.join(map(str, values))}}};")

    def value(self, *size):
        elements = size[0] * size[1] * size[2]
        self.most = max(self.most, elements)

    def weights(self, n, out):
        self.array("int8_t", "w", (j * 37 % 117 - 58 for j in range(n)))
        self.array("int32_t", "b", (j * 13 % 99 for j in range(out)))

    def conv(self, c_in, out, kernel, stride, image, depthwise=False):
        rows, columns = (-(-x // stride) for x in image)
        pads = [max((y - 1) * stride + k - x, 0) // 2 for x, y, k in zip(image, (rows, columns), kernel)]
        self.weights(out * kernel[0] * kernel[1] * (1 if depthwise else c_in), out)
        self.array("int32_t", "m", (1500000000 + j for j in range(out)))
        self.array("int32_t", "s", (-8 for j in range(out)))
        self.value(*image, c_in)
        self.value(rows, columns, out)
        name, kind = ("depthwise_conv", "dw_conv") if depthwise else ("convolve", "conv")
        shape = f"1,{kernel[0]},{kernel[1]},{out}" if depthwise else f"{out},{kernel[0]},{kernel[1]},{c_in}"
        k = self.n
        self.calls.append(f"""
    {{
        const cmsis_nn_{kind}_params p = {{128, -128, {'1, ' if depthwise else ''}{{{stride}, {stride}}}, {{{pads[1]}, {pads[0]}}}, {{1, 1}}, {{-128, 127}}}};
        const cmsis_nn_dims x = {{1, {image[0]}, {image[1]}, {c_in}}}, f = {{{shape}}}, b = {{1, 1, 1, {out}}}, y = {{1, {rows}, {columns}, {out}}};
        const cmsis_nn_per_channel_quant_params q = {{(int32_t *)m{k}, (int32_t *)s{k}}};
        const int32_t need = arm_{name}_wrapper_s8_get_buffer_size(&p, &x, &f, &y);
        const cmsis_nn_context c = {{scratch, need}};
        if (need > most) most = need;
        bad |= arm_{name}_wrapper_s8(&c, &p, &q, &x, a[at], &f, w{k}, &b, b{k}, &y, a[1 - at]), at = 1 - at;
    }}""")
        self.n += 1
        return rows, columns

    def dense(self, c_in, out):
        self.weights(c_in * out, out)
        self.value(1, 1, c_in)
        self.value(1, 1, out)
        k = self.n
        self.calls.append(f"""
    {{
        const cmsis_nn_fc_params p = {{128, 0, -128, {{-128, 127}}}};
        const cmsis_nn_dims x = {{1, 1, 1, {c_in}}}, f = {{{c_in}, 1, 1, {out}}}, b = {{1, 1, 1, {out}}}, y = {{1, 1, 1, {out}}};
        const cmsis_nn_per_tensor_quant_params q = {{1500000000, -8}};
        const cmsis_nn_context c = {{scratch, sizeof scratch}};
        bad |= arm_fully_connected_s8(&c, &p, &q, &x, a[at], &f, w{k}, &b, b{k}, &y, a[1 - at]), at = 1 - at;
    }}""")
        self.n += 1

    def head(self, image, channels, classes):
        self.calls.append(f"""
    {{
        const cmsis_nn_pool_params p = {{{{1, 1}}, {{0, 0}}, {{-128, 127}}}};
        const cmsis_nn_dims x = {{1, {image[0]}, {image[1]}, {channels}}}, f = {{1, {image[0]}, {image[1]}, 1}}, y = {{1, 1, 1, {channels}}};
        const cmsis_nn_context c = {{scratch, sizeof scratch}};
        bad |= arm_avgpool_s8(&c, &p, &x, a[at], &f, &y, a[1 - at]), at = 1 - at;
    }}""")
        self.dense(channels, classes)
        self.calls.append(f"\n    arm_softmax_s8(a[at], 1, {classes}, 1600000000, 24, -200, a[1 - at]);")

    def add(self, n):
        self.calls.append(f"\n    arm_elementwise_add_s8(a[at], a[2], 128, 1500000000, -1, 128, 1400000000, -1, 20, a[at], -128, 1600000000, -18, -128, 127, {n});")

    def text(self, buffers):
        return "\n".join(['#include "arm_nnfunctions.h"', *self.data, f"""
static int8_t a[3][{self.most}];
static int32_t scratch[5000];
int32_t most;
void net_run(const void *in, const void *out, void *arena)
{{
    int at = 0, bad = 0;
    (void)in, (void)out, (void)arena;{''.join(self.calls)}
    if (bad) __asm__ volatile("bkpt 1");
}}
/* {buffers * self.most} */
"""])


def program(net):
    """The text, and bytes of the values alive at the same time (two layers' buffers, three with a skip connection)."""
    p = Program()
    if net == "dscnn":
        image = p.conv(1, 64, (10, 4), 2, (49, 10))
        for _ in range(4):
            image = p.conv(64, 64, (3, 3), 1, image, True)
            image = p.conv(64, 64, (1, 1), 1, image)
        p.head(image, 64, 12)
    elif net == "mobilenet-vww":
        image, channels = p.conv(3, 8, (3, 3), 2, (96, 96)), 8
        for out, stride in VWW:
            image = p.conv(channels, channels, (3, 3), stride, image, True)
            image = p.conv(channels, out, (1, 1), 1, image)
            channels = out
        p.head(image, channels, 2)
    elif net == "resnet8":
        image, channels = p.conv(3, 16, (3, 3), 1, (32, 32)), 16
        for k in range(3):
            out, stride = 16 << k, 2 if k else 1
            after = p.conv(channels, out, (3, 3), stride, image)
            p.conv(out, out, (3, 3), 1, after)
            if stride > 1:
                p.conv(channels, out, (1, 1), stride, image)
            p.add(out * after[0] * after[1])
            image, channels = after, out
        p.head(image, channels, 10)
    else:
        for a, b in zip(DENSE, DENSE[1:]):
            p.dense(a, b)
    return p.text(3 if net == "resnet8" else 2)
