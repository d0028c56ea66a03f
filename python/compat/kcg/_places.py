# SPDX-License-Identifier: Apache-2.0
"""Devices by number, and folders.

Scripts name GPUs by number, `model.to(7)`. Where the machine has no such GPU, the number is another device: the first GPU, or the CPU where
there is none. That is said once.
"""
import functools
import os
import pathlib
import shutil

import torch

import quern

said = set()


def say_once(text):
    """Messages about what is done in place of what a script asked for."""
    if text not in said:
        said.add(text)
        print(f"kcg: {text}", flush=True)


def is_number(device):
    return isinstance(device, int) and not isinstance(device, bool)


def device_of(device):
    """The torch.device of a number, or of whatever torch.device takes."""
    if not is_number(device):
        return torch.device(device)
    n = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if 0 <= device < n:
        return torch.device("cuda", device)
    place = torch.device("cuda", 0) if n else torch.device("cpu")
    say_once(f"there is no GPU {device}: '{place}' is used instead")
    return place


def replaced(function):
    """`to` of tensors and modules, by which numbers of GPUs that do not exist are other devices."""

    @functools.wraps(function)
    def to(self, *args, **named):
        if args and is_number(args[0]):
            args = (device_of(args[0]), *args[1:])
        if is_number(named.get("device")):
            named["device"] = device_of(named["device"])
        return function(self, *args, **named)

    to.kcg_original = function
    return to


class DeviceInfo:
    """The devices of a script."""

    ids = []         # as given to init_cuda
    current = None   # of ids

    @staticmethod
    def init_cuda(devids):
        """Numbers (or names) of devices. From then on Tensor.to and Module.to take numbers without a GPU, too."""
        DeviceInfo.ids = list(devids) or [0]
        DeviceInfo.set_current_device(DeviceInfo.ids[0])
        for kind in (torch.Tensor, torch.nn.Module):
            if not hasattr(kind.to, "kcg_original"):
                kind.to = replaced(kind.to)

    @staticmethod
    def release():
        """Tensor.to and Module.to are PyTorch's again."""
        for kind in (torch.Tensor, torch.nn.Module):
            kind.to = getattr(kind.to, "kcg_original", kind.to)

    @staticmethod
    def set_current_device(devid):
        DeviceInfo.current = devid
        device = device_of(devid)
        if device.type == "cuda":
            torch.cuda.set_device(device)

    @staticmethod
    def get_current_device():
        return DeviceInfo.current

    @staticmethod
    def get_device_count():
        return torch.cuda.device_count() if torch.cuda.is_available() else 0


class PathManager:
    """Folders of intermediate files, in KCG_HOME, else in the user's cache. Measurements are not among them: these are in quern's database,
    which nothing here deletes."""

    FOLDERS = {"Pkl": "_pkls", "Cache": "_cache", "Tmp": "_tmp", "Dump": "_dump"}

    @staticmethod
    def project_dir():
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        return os.environ.get("KCG_HOME") or os.path.join(cache, "quern", "kcg")

    @staticmethod
    def folder(what):
        """The path of one of FOLDERS; it need not exist."""
        return os.path.join(PathManager.project_dir(), PathManager.FOLDERS[what])

    @staticmethod
    def pkl_dir():
        return PathManager.folder("Pkl")

    @staticmethod
    def default_cache_dir():
        return PathManager.folder("Cache")

    @staticmethod
    def tmp_dir():
        return PathManager.folder("Tmp")

    @staticmethod
    def default_dump_dir():
        return PathManager.folder("Dump")

    @staticmethod
    def database():
        """The database of measurements: QUERN_DATABASE, else in the user's cache."""
        return quern.cache_path()

    @staticmethod
    def init(clearPkl=False, clearCache=False, clearTmp=False, clearDump=False):
        """Creates the folders, empty if they are to be cleared."""
        for what, clear in (("Pkl", clearPkl), ("Cache", clearCache), ("Tmp", clearTmp), ("Dump", clearDump)):
            path = PathManager.folder(what)
            if clear:
                shutil.rmtree(path, ignore_errors=True)
            os.makedirs(path, exist_ok=True)


def find_file(path):
    """The file itself; else the one of that name in the current folder, or in the package's TuningConfigs, which is said: scripts have paths of the
    machines that they were written on."""
    if os.path.exists(path):
        return os.fspath(path)
    name = os.path.basename(path)
    for folder in (pathlib.Path.cwd(), pathlib.Path(__file__).parent / "TuningConfigs"):
        if (folder / name).is_file():
            say_once(f"there is no '{path}': '{folder / name}' is used instead")
            return str(folder / name)
    raise FileNotFoundError(f"there is no '{path}', and no '{name}' in the current folder")
