# SPDX-License-Identifier: Apache-2.0
"""Rendered pictures to learn from, and to test with. Scene numbers 1 to 999 are held out: nothing is learnt from them.

A folder has one folder per scene: noisy pictures with features (noisy0.npy, noisy0.albedo.npy ...; other random numbers in noisy1) and a
reference of many samples, without features. What is there is not rendered again.
"""
import os
import pathlib
import shutil
import subprocess

import numpy as np
import torch

from net import INPUTS

HERE = pathlib.Path(__file__).resolve().parent
FIRST_TRAINING = 1000  # scenes from here on
SAMPLES = 8
PLANES = {"colour": "", "albedo": ".albedo", "normal": ".normal", "depth": ".depth"}


def build_renderer(build, to):
    """Compiles the path tracer against the library in the folder `build`: a build's, or the Python package's."""
    os.makedirs(to, exist_ok=True)
    program, library = os.path.join(os.path.abspath(to), "render"), os.path.join(os.path.abspath(to), "libquern.so.0")
    if os.path.lexists(library):
        os.remove(library)
    os.symlink(os.path.abspath(os.path.join(build, "libquern.so.0")), library)
    subprocess.run([os.environ.get("CC", "cc"), "-O3", "-march=native", "-ffp-contract=off", "-std=gnu11", "-I", HERE.parents[1] / "include",
                    "-o", program, *sorted(HERE.glob("*.c")), library, f"-Wl,-rpath,{os.path.dirname(library)}", "-lm", "-lpthread"], check=True)
    return program


class Set:
    """Scenes first .. first + count - 1, of size x size pixels, `passes` noisy pictures each, references of `reference` samples. With `check`
    a second reference of so many samples, to know what noise the first one has."""

    def __init__(self, folder, first, count, size, passes, reference, check=0):
        self.folder, self.scenes = pathlib.Path(folder), range(first, first + count)
        self.size, self.passes, self.reference, self.check = size, passes, reference, check

    def render(self, program, threads, say=print):
        for scene in self.scenes:
            to = self.folder / str(scene)
            if to.exists():
                continue
            work = self.folder / f"{scene}.part"  # a folder that was interrupted is not taken for a whole one
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            # each of random numbers of its own: else the noise of a noisy picture would be part of what is learnt
            pictures = [(f"noisy{k}", k, SAMPLES, ()) for k in range(self.passes)]
            pictures.append(("reference", 255, self.reference, ("--only-colour",)))
            if self.check:
                pictures.append(("check", 254, self.check, ("--only-colour",)))
            for name, stream, samples, more in pictures:
                command = (program, "--scene", scene, "--threads", threads, "--pass", stream, *more, work / f"{name}.npy", self.size, self.size, samples)
                subprocess.run([str(x) for x in command], check=True)
            work.rename(to)
            say(f"scene {scene}: {self.scenes.index(scene) + 1} of {len(self.scenes)}")

    def there(self):
        """The scenes that are rendered."""
        return [s for s in self.scenes if (self.folder / str(s)).exists()]

    def noisy(self, scene, k):
        """(10, h, w): colour, albedo, normal, depth"""
        return np.concatenate([np.load(self.folder / str(scene) / f"noisy{k}{s}.npy")[0] for s in PLANES.values()])

    def converged(self, scene, name="reference"):
        return np.load(self.folder / str(scene) / f"{name}.npy")[0]

    def load(self):
        """All of it, in f16: noisy (scenes, passes, 10, h, w) and references (scenes, 3, h, w)."""
        noisy = np.stack([np.stack([self.noisy(s, k).astype(np.float16) for k in range(self.passes)]) for s in self.there()])
        return torch.from_numpy(noisy), torch.from_numpy(np.stack([self.converged(s).astype(np.float16) for s in self.there()]))


class Crops:
    """Random crops, as batches: mirrored, turned, in other colours and brightness, normals in another space, and now and then of
    twice the samples (the mean of two noisy pictures). A function of the seed."""

    def __init__(self, noisy, reference, crop, batch, seed):
        self.noisy, self.reference, self.crop, self.batch = noisy, reference, crop, batch
        self.random = torch.Generator().manual_seed(seed)

    def integer(self, n):
        return int(torch.randint(n, (1,), generator=self.random))

    def one(self):
        scenes, passes, _, h, w = self.noisy.shape
        scene, y, x = self.integer(scenes), self.integer(h - self.crop + 1), self.integer(w - self.crop + 1)
        window = (slice(None), slice(y, y + self.crop), slice(x, x + self.crop))
        k = self.integer(passes)
        noisy = self.noisy[scene, k][window].float()
        if passes > 1 and self.integer(6) == 0:
            noisy = (noisy + self.noisy[scene, (k + 1) % passes][window].float()) / 2
        return self.changed(torch.cat((noisy, self.reference[scene][window].float())))

    def changed(self, x):
        """x (13, h, w): inputs and reference."""
        x = x.clone()
        order = torch.randperm(3, generator=self.random)
        tint = 2 ** (torch.rand(3, 1, 1, generator=self.random) * 0.6 - 0.3) * 2 ** float(torch.rand(1, generator=self.random) * 2 - 1)
        x[0:3], x[3:6], x[10:13] = x[0:3][order] * tint, x[3:6][order], x[10:13][order] * tint
        axes = torch.randperm(3, generator=self.random)
        signs = torch.randint(2, (3, 1, 1), generator=self.random) * 2.0 - 1
        x[6:9] = x[6:9][axes] * signs
        x = torch.rot90(x, self.integer(4), (1, 2))
        return torch.flip(x, (2,)) if self.integer(2) else x

    def next(self):
        x = torch.stack([self.one() for _ in range(self.batch)])
        return [t.contiguous() for t in torch.split(x, (*INPUTS.values(), 3), 1)]
