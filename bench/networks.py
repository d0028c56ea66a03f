#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# networks.py FOLDER [NAME ...]: networks as users export them (all, or those named), at usual sizes,
# with random weights: FOLDER/NAME.onnx, and inputs for it in FOLDER/NAME.npz. Files that are there
# are kept. The networks are those of torchvision, timm, transformers and diffusers, and some written
# out here. `bench/setup architectures` installs the packages; NAMES, for bench/rows.py, needs none.
import os
import sys
import warnings

TORCHVISION = """alexnet vgg11_bn resnet18 resnet50 resnext50_32x4d wide_resnet50_2 densenet121 googlenet inception_v3
squeezenet1_1 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large shufflenet_v2_x1_0 mnasnet1_0 efficientnet_b0
efficientnet_v2_s regnet_x_400mf regnet_y_400mf convnext_tiny swin_t swin_v2_t vit_b_16 maxvit_t""".split()
SEGMENTATION = "fcn_resnet50 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large".split()
VIDEO = "r3d_18 mc3_18".split()
TIMM = """resnetv2_50 mixer_s16_224 poolformer_s12 xcit_nano_12_p16_224 cait_xxs24_224 deit_tiny_patch16_224
beit_base_patch16_224 levit_128s mobilevit_xxs edgenext_xx_small ghostnet_100 hrnet_w18_small res2net50_26w_4s rexnet_100
coat_lite_tiny pvt_v2_b0 repvgg_a0 twins_pcpvt_small visformer_tiny nfnet_l0 fastvit_t8 efficientformer_l1 dpn68
selecsls42b mobilenetv4_conv_small coatnet_0_rw_224""".split()

WIDE = dict(hidden_size=1024, num_attention_heads=16, intermediate_size=4096)
BASE = dict(hidden_size=768, num_attention_heads=12, intermediate_size=3072)
# name: model of transformers, its configuration, arguments, tokens, sequences if several. Layers are fewer than usual
# where they are all alike, and vocabularies small: only a table is read from them.
TEXT = {
    "bert-large": ("BertModel", "BertConfig", dict(WIDE, num_hidden_layers=4, vocab_size=4000), 128),
    "bert-large-1024": ("BertModel", "BertConfig",
                        dict(WIDE, num_hidden_layers=2, vocab_size=4000, max_position_embeddings=1024), 1024),
    "bert-large-2x1024": ("BertModel", "BertConfig",
                          dict(WIDE, num_hidden_layers=2, vocab_size=4000, max_position_embeddings=1024), 1024, 2),
    "distilbert": ("DistilBertModel", "DistilBertConfig", dict(vocab_size=4000), 128),
    "albert": ("AlbertModel", "AlbertConfig", dict(BASE, num_hidden_layers=4, vocab_size=4000), 128),
    "deberta-v2": ("DebertaV2Model", "DebertaV2Config",
                   dict(BASE, num_hidden_layers=4, vocab_size=4000, relative_attention=True, pos_att_type=["p2c", "c2p"]), 128),
    "modernbert": ("ModernBertModel", "ModernBertConfig",
                   dict(num_hidden_layers=6, vocab_size=4000, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
                        sep_token_id=2), 256),
    "gpt2": ("GPT2Model", "GPT2Config", dict(n_layer=4, vocab_size=4000), 1024),
    "opt": ("OPTModel", "OPTConfig", dict(num_hidden_layers=4, vocab_size=4000), 128),
    "bloom": ("BloomModel", "BloomConfig", dict(hidden_size=1024, n_layer=4, n_head=16, vocab_size=4000), 128),
    "llama": ("LlamaModel", "LlamaConfig",
              dict(hidden_size=2048, num_attention_heads=32, num_key_value_heads=8, intermediate_size=8192,
                   num_hidden_layers=2, vocab_size=4000), 128),
    "llama2": ("LlamaModel", "LlamaConfig",
               dict(hidden_size=4096, num_attention_heads=32, intermediate_size=11008, num_hidden_layers=1, vocab_size=4000), 512),
    "qwen2": ("Qwen2Model", "Qwen2Config",
              dict(hidden_size=896, num_attention_heads=14, num_key_value_heads=2, intermediate_size=4864,
                   num_hidden_layers=4, vocab_size=4000), 128),
    "t5-encoder": ("T5EncoderModel", "T5Config", dict(num_layers=4, vocab_size=4000), 128),
}
CAUSAL = ("gpt2", "opt", "bloom", "llama", "llama2", "qwen2")
# name: model, configuration, arguments, shape of the input
SIGNALS = {
    "whisper-encoder": ("WhisperModel", "WhisperConfig",
                        dict(d_model=512, encoder_layers=6, encoder_attention_heads=8, encoder_ffn_dim=2048, decoder_layers=1,
                             decoder_attention_heads=8, vocab_size=4000, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                             decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None), (1, 80, 3000)),
    "wav2vec2": ("Wav2Vec2Model", "Wav2Vec2Config", dict(num_hidden_layers=4), (1, 16000)),
    "segformer": ("SegformerModel", "SegformerConfig", {}, (1, 3, 256, 256)),
    "convnextv2": ("ConvNextV2Model", "ConvNextV2Config", {}, (1, 3, 224, 224)),
    "dinov2": ("Dinov2Model", "Dinov2Config", dict(hidden_size=384, num_attention_heads=6, image_size=224), (1, 3, 224, 224)),
    "detr": ("DetrModel", "DetrConfig", dict(use_timm_backbone=True, backbone="resnet50", use_pretrained_backbone=False),
             (1, 3, 320, 320)),
}
PLAIN = ["unet", "diffusion-unet", "raft-small", "dcgan", "stylegan-block", "nerf", "super-resolution", "crnn", "mlp"]
NAMES = [*TORCHVISION, *SEGMENTATION, *VIDEO, *TIMM, *TEXT, *SIGNALS, *PLAIN]


def wrapped(net, call):
    """A module that calls net in another way, to have tensors as its only results."""
    import torch

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, *a):
            return call(self.net, *a)

    return Wrapped()


def noise(*shape):
    import torch

    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def of_torchvision(name):
    from torchvision import models

    if name in SEGMENTATION:
        net = getattr(models.segmentation, name)(weights=None, weights_backbone=None)
        return wrapped(net, lambda n, x: n(x)["out"]), {"x": noise(1, 3, 256, 256)}
    if name in VIDEO:
        return getattr(models.video, name)(weights=None), {"x": noise(1, 3, 8, 112, 112)}
    plain = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    size = 299 if name == "inception_v3" else 224
    return getattr(models, name)(weights=None, **plain), {"x": noise(1, 3, size, size)}


def of_timm(name):
    import timm

    net = timm.create_model(name, pretrained=False)
    return net, {"x": noise(1, *net.default_cfg["input_size"])}


def of_transformers(name):
    import torch
    import transformers as tf

    if name in SIGNALS:
        model, config, args, shape = SIGNALS[name]
        net = getattr(tf, model)(getattr(tf, config)(**args))
        if name == "whisper-encoder":
            net = net.encoder
        return wrapped(net, lambda n, x: n(x).last_hidden_state), {"x": noise(*shape)}
    model, config, args, tokens, *batch = TEXT[name]
    net = getattr(tf, model)(getattr(tf, config)(**args))
    more = {"use_cache": False} if name in CAUSAL else {}
    ids = torch.randint(3, 4000, (*(batch or [1]), tokens), generator=torch.Generator().manual_seed(1))
    call = lambda n, ids, mask: n(input_ids=ids, attention_mask=mask, **more).last_hidden_state
    return wrapped(net, call), {"ids": ids, "mask": torch.ones_like(ids)}


def unet():
    """Ronneberger et al., U-Net (2015), half as wide, with padded convolutions."""
    import torch
    from torch import nn

    def block(a, b):
        layers = [(nn.Conv2d(c, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()) for c in (a, b)]
        return nn.Sequential(*layers[0], *layers[1])

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            w = [32, 64, 128, 256, 512]
            self.down = nn.ModuleList(block(a, b) for a, b in zip([3] + w, w))
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * c, c, 2, stride=2) for c in w[-2::-1])
            self.join = nn.ModuleList(block(2 * c, c) for c in w[-2::-1])
            self.last = nn.Conv2d(w[0], 3, 1)

        def forward(self, x):
            kept = []
            for i, d in enumerate(self.down):
                x = d(nn.functional.max_pool2d(x, 2) if i else x)
                kept.append(x)
            for up, join, skip in zip(self.up, self.join, kept[-2::-1]):
                x = join(torch.cat([skip, up(x)], 1))
            return self.last(x)

    return UNet(), {"x": noise(1, 3, 256, 256)}


def diffusion_unet():
    import diffusers
    import torch

    net = diffusers.UNet2DModel(sample_size=64, block_out_channels=(64, 128, 256), layers_per_block=2,
                                down_block_types=("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"),
                                up_block_types=("AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D"))  # fmt: skip
    return wrapped(net, lambda n, x, t: n(x, t).sample), {"x": noise(1, 3, 64, 64), "t": torch.tensor([10])}


def raft_small():
    from torchvision import models

    net = models.optical_flow.raft_small(weights=None)
    pictures = {n: noise(1, 3, 128, 160).tanh() * s for n, s in (("a", 1), ("b", 0.9))}
    return wrapped(net, lambda n, a, b: n(a, b, num_flow_updates=6)[-1]), pictures


def dcgan():
    """Radford et al., Unsupervised Representation Learning with DCGANs (2016): the generator."""
    from torch import nn

    layers, w = [], [100, 512, 256, 128, 64]
    for i, (a, b) in enumerate(zip(w, w[1:])):
        layers += [nn.ConvTranspose2d(a, b, 4, 2 if i else 1, 1 if i else 0, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()), {"x": noise(1, 100, 1, 1)}


def stylegan_block():
    """Karras et al., Analyzing and Improving the Image Quality of StyleGAN (2020): convolutions
    whose weights are modulated by a style and demodulated, three of them."""
    import torch
    from torch import nn

    class Modulated(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.weight, self.style = nn.Parameter(noise(1, b, a, 3, 3) / (3 * a**0.5)), nn.Linear(128, a)

        def forward(self, x, s):
            w = self.weight * (1 + self.style(s))[:, None, :, None, None]
            w = w * torch.rsqrt((w * w).sum((2, 3, 4), keepdim=True) + 1e-8)
            return nn.functional.leaky_relu(nn.functional.conv2d(x, w[0], padding=1), 0.2)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = Modulated(128, 128), Modulated(128, 64), Modulated(64, 64)

        def forward(self, x, s):
            x = nn.functional.interpolate(self.a(x, s), scale_factor=2, mode="bilinear", align_corners=False)
            return self.c(self.b(x, s), s)

    return Block(), {"x": noise(1, 128, 32, 32), "s": noise(1, 128)}


def nerf():
    """Mildenhall et al., NeRF (2020): the network of 8 layers of 256, for 4096 points, with its
    positional encoding."""
    import torch
    from torch import nn

    class Nerf(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(60 if i == 0 else 316 if i == 5 else 256, 256) for i in range(8))
            self.last = nn.Linear(256, 4)

        def forward(self, p):
            angles = torch.cat([p * float(2**i) for i in range(10)], -1)
            e = torch.cat([angles.sin(), angles.cos()], -1)
            x = e
            for i, layer in enumerate(self.layers):
                x = torch.relu(layer(torch.cat([e, x], -1) if i == 5 else x))
            return self.last(x)

    return Nerf(), {"p": noise(4096, 3)}


def super_resolution():
    """Shi et al., Real-Time Single Image and Video Super-Resolution (2016): ESPCN, four times."""
    from torch import nn

    convs = [nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(), nn.Conv2d(32, 16, 3, padding=1)]
    return nn.Sequential(*convs, nn.PixelShuffle(4)), {"x": noise(1, 1, 180, 320)}


def crnn():
    """Shi et al., An End-to-End Trainable Neural Network for Image-Based Sequence Recognition
    (2015), lighter by its first layers."""
    from torch import nn

    class Crnn(nn.Module):
        def __init__(self):
            super().__init__()
            w = [1, 32, 64, 128]
            convs = [(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)) for a, b in zip(w, w[1:])]
            self.f = nn.Sequential(*sum(map(list, convs), []))
            self.r = nn.LSTM(128 * 4, 128, num_layers=2, bidirectional=True, batch_first=True)
            self.out = nn.Linear(256, 40)

        def forward(self, x):
            return self.out(self.r(self.f(x).permute(0, 3, 1, 2).flatten(2))[0])

    return Crnn(), {"x": noise(1, 1, 32, 256)}


def mlp():
    from torch import nn

    w = [64, 256, 256, 256, 8]
    layers = [m for a, b in zip(w, w[1:]) for m in (nn.Linear(a, b), nn.GELU())]
    return nn.Sequential(*layers[:-1]), {"x": noise(512, 64)}


def draw_zeros(net):
    """Draws weights that a new network has as zeros, such as those of heads and the gains of
    branches: its outputs would not depend on its input."""
    import torch

    with torch.no_grad():
        for name, p in net.named_parameters():
            if not name.endswith("bias") and not p.any():
                p.normal_(std=0.02)


def build(name):
    """The network and its inputs by name."""
    import torch

    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)
    if name in PLAIN:
        return globals()[name.replace("-", "_")]()
    for of, names in ((of_timm, TIMM), (of_transformers, (*TEXT, *SIGNALS)), (of_torchvision, NAMES)):
        if name in names:
            return of(name)
    raise SystemExit("networks.py: no network is called '%s'; there are: %s" % (name, " ".join(NAMES)))


def export(net, inputs, path):
    """By today's exporter of PyTorch; by the older one where it fails."""
    import torch

    net, args, names = net.eval(), tuple(inputs.values()), list(inputs)
    with torch.no_grad():
        try:
            torch.onnx.export(net, args, path, input_names=names, dynamo=True, external_data=False)
        except Exception:
            torch.onnx.export(net, args, path, input_names=names, dynamo=False, opset_version=17)


def write(name, folder):
    import numpy as np
    import onnx

    path = os.path.join(folder, name)
    if os.path.exists(path + ".onnx"):
        return
    net, inputs = build(name)
    draw_zeros(net)
    export(net, inputs, path + ".part")
    used = [i.name for i in onnx.load(path + ".part").graph.input]  # an exporter may leave inputs out
    np.savez(path + ".npz", **{n: inputs[n].numpy() for n in used})
    os.replace(path + ".part", path + ".onnx")


def main():
    warnings.filterwarnings("ignore")
    folder, failed = sys.argv[1], 0
    os.makedirs(folder, exist_ok=True)
    for name in sys.argv[2:] or NAMES:
        try:
            write(name, folder)
        except Exception as e:  # whatever an exporter cannot do
            failed += 1
            print("networks.py: %s: %s" % (name, str(e).strip().split("\n")[0][:200]), file=sys.stderr)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
