# SPDX-License-Identifier: Apache-2.0
"""A function that PyTorch's compiler compiled (bytecode, guards, our graphs), saved for other processes and restored. Built on its internal interfaces
(torch._dynamo.package): _warm_start.py imports this module only for versions that were tested."""
from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import logging
import pickle
import sys
import threading
import types
import weakref
from typing import Any, Callable, Iterable, Iterator, Sequence

import torch
from torch._dynamo.guards import CheckFunctionManager
from torch._dynamo.package import CompilePackage, SerializedCode, _lookup_code, load_guard_manager, load_guards_state
from torch._dynamo.precompile_package import default_guard_filter_fn

from ._cache import cache
from ._digests import NotPortable, codes_of, is_there, where_is
from ._warm_start_code import BY_ADDRESS, check_globals, globals_of, install, rename, resumed, uninstall
from ._warm_start_guards import IDENTITY_GUARDS, IdentityGuard, add, current, describe_all, is_same, meaning, place_of
from ._warm_start_key import key_of, surroundings

log = logging.getLogger("quern")

MOST = 64 << 20     # bytes of a saved start
VARIANTS = 8        # compilations of a function that are kept, as many as PyTorch makes in a process

Place = tuple[str, str, str]        # of _digests.where_is
Said = tuple[list[str], list[str]]  # places and descriptions of what a guard on identities compares

alive: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()  # key -> Start that is in the cache


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Without Python's searches for garbage, which take most of the time where many objects are made."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Start(CompilePackage):
    """A compiled function, with rests of it behind what the compiler cannot trace, of this process or an earlier one. how: options of the compilation; model: the function, or a module."""

    def __init__(self, how: str) -> None:
        super().__init__(fn=None, dynamo=None)
        self.how = how
        self.model: Any = None
        self.key: str | None = None                       # of the cache
        self.why: str | None = None                       # it cannot be kept
        self.around: list[Any] | None = None              # surroundings() of the first call
        self.pending: list[tuple[Any, IdentityGuard]] = []   # with their CheckFunctionManager, of the compilation that runs
        self.said: dict[types.CodeType, list[Said]] = {}  # of a code's guarded codes
        self.traced: dict[Any, Place | None] = {}         # code or class, of another process its place -> where it is
        self.graphs: dict[str, Any] = {}                  # back end's name -> Graph
        self.aliases: dict[str, tuple[str, str]] = {}     # names of modules among the globals that differ between processes -> (module in which, module)
        self.is_changed = False
        self.is_read = False
        self.lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, tuple[str]]:  # a copy of a compiled model traces by itself
        return Start, (self.how,)

    def give_up(self, why: str) -> None:
        """Keeps nothing of this function, for this reason; the first one is logged."""
        if self.why is None:
            self.why = why
            log.info("torch.compile: the start of %s is not kept: %s", getattr(self._innermost_fn, "__qualname__", "a function"), why)

    # --- compilation ---

    def initialize(self, fn: Any, dynamo: Any = None, ignore_inlined_sources: bool = True) -> None:
        super().initialize(fn, dynamo, True)
        entry = self._codes[self._innermost_fn.__code__]
        variables = self._innermost_fn.__globals__
        entry.python_module = variables.get("__name__", "")  # of a wrapper it is not that of what it wraps
        if getattr(sys.modules.get(entry.python_module), "__dict__", None) is not variables:
            raise NotPortable("a function of no module")

    def _add_user_function(self, code: types.CodeType) -> None:
        try:
            super()._add_user_function(code)
        except Exception as e:
            self.give_up(str(e))
            self._add_function(code, "builtins")

    def add_inlined_source(self, sources: Iterable[types.CodeType]) -> None:
        """PyTorch's hook for functions that a trace went through: notes where they are."""
        for code in sources:
            if code not in self._resume_codes and code not in self.traced:
                try:
                    self.traced[code] = where_is(code)
                except NotPortable as e:
                    if code not in self.methods():
                        self.give_up(str(e))

    def methods(self) -> set[types.CodeType]:
        """Code of methods of the classes that are compared anyway: some have no name of their own, as those that dataclasses makes."""
        classes = {c for c in [*self.traced, *(x for _, guard in self.pending for x in guard.objects or ())] if isinstance(c, type)}
        return {code for c in classes for k in c.__mro__ for v in vars(k).values() for code in codes_of(v, set())}

    @contextlib.contextmanager
    def code_context(self, code: types.CodeType) -> Iterator[None]:
        """Around a compilation: adds the guards on identities to what it made."""
        outer, self.pending = self.pending, []
        current.is_compiling = True
        try:
            with super().code_context(code) if self._current_entry is None else contextlib.nullcontext():
                yield
        finally:
            current.is_compiling = False
            for check, guard in self.pending:
                add(check.guard_manager, guard)
            self.pending = outer

    def filter(self, guards: Sequence[Any]) -> Sequence[bool]:
        """Which guards the compiler keeps; the others are those on identities."""
        if getattr(current, "start", None) is not self:
            self.give_up("a copy of a compiled model")
        if self.why is not None:
            return [True] * len(guards)  # PyTorch cannot keep this compilation then
        try:
            keep, places, objects = self.parts(guards)
            what = describe_all(objects)
            frame = sys._getframe(1)
            check, graph = frame.f_locals["self"], frame.f_locals["output_graph"]
            variables = sys.modules[self._current_entry.python_module].__dict__
            guard = IdentityGuard(self.how, variables, places, what, objects)
            if not isinstance(check, CheckFunctionManager) or not all(map(is_same, guard.get(graph.local_scope, variables), objects)):
                raise NotPortable("guards that are not at their places")
        except Exception as e:
            self.give_up(f"{e}")
            return [True] * len(guards)
        self.pending.append((check, guard))
        return keep

    def parts(self, guards: Sequence[Any]) -> tuple[Sequence[bool], list[str], list[Any]]:
        """Which guards are kept, and of the others the places and values of what they compare. Raises NotPortable."""
        for t in {type(g.value) for g in guards if g.guard_type == "TYPE_MATCH" and g.has_value} - set(self.traced):
            self.traced[t] = where_is(t)
        keep = default_guard_filter_fn(guards)
        left = [g for k, g in zip(keep, guards) if not k]
        for g in left:
            kinds = {g.guard_type, *g.derived_guard_types}
            if g.guard_type not in IDENTITY_GUARDS and not kinds & set(IDENTITY_GUARDS) or kinds & {"DICT_VERSION", "WEAKREF_ALIVE", "NN_MODULE"}:
                raise NotPortable(f"a guard {g.guard_type} on {g.name}")
        found = [place_of(g) for g in left]
        return keep, [place for place, _ in found], [value for _, value in found]

    def add_guarded_code(self, guards_state: bytes, dynamo_code: types.CodeType) -> None:
        """PyTorch's hook behind each compilation: notes its guards on identities and the globals that it reads."""
        super().add_guarded_code(guards_state, dynamo_code)
        code = next(c for c, e in self._codes.items() if e is self._current_entry)
        if len(self.pending) != 1:  # given up, or compilations in compilations
            self.give_up("guards that are not those of one compilation")
            return
        guard = self.pending[0][1]
        self.said.setdefault(code, []).append((guard.places, guard.what))
        try:
            self.note_aliases(" ".join([*guard.places, *globals_of(dynamo_code)]))
        except NotPortable as e:
            self.give_up(str(e))
        if len(self.said[code]) > VARIANTS:
            self.give_up(f"more than {VARIANTS} compilations of one function")
        self.is_changed = True

    def note_aliases(self, names: str) -> None:
        """Notes modules among globals whose names contain addresses. Raises NotPortable for other such globals."""
        module = self._current_entry.python_module
        for name in BY_ADDRESS.findall(names):
            value = vars(sys.modules[module]).get(name)
            if not isinstance(value, types.ModuleType):
                raise NotPortable(f"a global of this process, {name}")
            self.aliases[name] = module, value.__name__

    # --- the cache ---

    def save(self) -> None:
        """Keeps what there is, if it can be."""
        self.is_changed = False
        if self.why is not None or self.key is None:
            return
        try:
            if surroundings() != self.around:
                raise NotPortable("settings changed since the first call")
            entry = self.cache_entry()
            if any(e.bypassed or len(e.guarded_codes) != len(self.said.get(c, ())) for c, e in self._codes.items()):
                raise NotPortable("guards that PyTorch cannot write")
            missing = {k for e in entry.codes for k in e.backend_ids} - set(self.graphs)
            if missing:
                raise NotPortable("a graph that is not the library's, or not plain")
            graphs = {k: g.saved() for k, g in self.graphs.items()}
            traced = {w for w in self.traced.values() if w is not None}
            data = pickle.dumps((entry, [self.said.get(c, []) for c in self._codes], traced, self.aliases, graphs))
            if len(data) > MOST:
                raise NotPortable(f"{len(data) >> 20} MiB")
            cache.put(self.key, data)
            alive[self.key] = self
        except Exception as e:  # whatever pickle, or another version of PyTorch, raises
            self.give_up(f"{type(e).__name__}: {e}")

    def read(self) -> None:
        """Takes what another process kept, and is a new package otherwise. Before the first call."""
        self.is_read = True
        fn = self.model.forward if isinstance(self.model, torch.nn.Module) else self.model
        try:
            from torch._dynamo.eval_frame import innermost_fn
            self.around = surroundings()
            key = key_of(self.model, innermost_fn(fn), self.how, self.around)
            self.key = None if key in alive else key  # that one has the same compilations
            data = cache.get(key) if self.key else None
            if data:
                try:
                    with without_collections():
                        self.take(fn, data)
                    alive[key] = self
                    return
                except Exception as e:
                    log.info("torch.compile: a start is not used: %s: %s", type(e).__name__, e)
                    self.withdraw()
                    known = {k: getattr(self, k) for k in ("key", "model", "around", "is_read")}
                    Start.__init__(self, self.how)
                    self.__dict__.update(known)
            self.initialize(fn)
        except Exception as e:
            self.give_up(f"{type(e).__name__}: {e}")

    def take(self, fn: Any, data: bytes) -> None:
        """Restores and installs what save() wrote, for a function. Raises NotPortable, and whatever PyTorch does, if it is not as it was."""
        entry, said, traced, self.aliases, graphs = pickle.loads(data)  # sealed: written by this user's process
        if not all(is_there(*w) for w in traced):
            raise NotPortable("functions have changed")
        graphs = rename(entry, graphs)
        self.initialize(fn, entry)
        self.graphs, self.traced = graphs, {w: w for w in traced}
        self.said = {c: s for c, s in zip(self._codes, said) if s}
        for name, (module, what) in self.aliases.items():
            self._install_global(sys.modules[module], name, importlib.import_module(what), record_only_if_new=True)
        for code, e in self._codes.items():
            self.install_globals(code, e)
        for code, e in self._codes.items():
            self.install_codes(code, e)

    def install_globals(self, code: types.CodeType, entry: Any) -> None:
        """Lets what was made of a code find modules, rests of functions and graphs."""
        module = sys.modules[entry.python_module]
        for alias, name in entry.import_sources.items():
            self._install_global(module, alias, importlib.import_module(name), record_only_if_new=True)
        for name in entry.function_names if entry.install_to_global else ():
            self._install_global(module, name, resumed(code, module.__dict__, name))
        for name in entry.backend_ids:
            self._install_global(module, name, torch._dynamo.disable(self.graphs[name]))

    def install_codes(self, code: types.CodeType, entry: Any) -> None:
        """Lets the compiler find what was made of a code."""
        variables = sys.modules[entry.python_module].__dict__
        at = _lookup_code(entry) if entry.code_source else code
        all_said = self.said.get(code, [])
        if len(all_said) != len(entry.guarded_codes):
            raise ValueError(f"guards of {len(all_said)} codes for {len(entry.guarded_codes)}")
        for kept, (places, what) in zip(entry.guarded_codes, all_said):
            compiled = SerializedCode.to_code_object(kept.dynamo_code)
            check_globals(compiled, variables)
            manager = self.guards(kept.guards_state, at, variables)
            add(manager, IdentityGuard(self.how, variables, places, what))
            install(at, self, manager, compiled)

    def guards(self, state: Any, code: types.CodeType, variables: dict[str, Any]) -> Any:
        """A manager of guards as PyTorch makes it anew from its serialised form. Raises NotPortable if one is another than it was."""
        from torch._dynamo.output_graph import get_builtins_dict
        from torch._dynamo.utils import CleanupHook
        state = load_guards_state(state)
        were = [(g, g.code_list) for g in state.output_graph.guards]
        for g, _ in were:
            g.stack = g.user_stack = g.code_list = None  # formatting stacks takes a quarter of the time
        if state.shape_code_parts is not None:
            state.shape_code_parts.python_fallback = True  # no C++ compiler is started for them
        name = state.output_graph.name_of_builtins_dict_key_in_fglobals
        if name:
            CleanupHook.disown(variables, name)
            variables.setdefault(name, get_builtins_dict(variables))
        manager = load_guard_manager(state, code, variables)
        for g, was in were:
            if meaning(g.code_list) != meaning(was):
                raise NotPortable(f"a guard that is another one here: {g.code_list}, {was}")
        return manager

    def withdraw(self) -> None:
        """Removes what was installed."""
        uninstall(self)
        if self._innermost_fn is not None:
            for module, names in self._installed_globals.items():
                for name in names:
                    module.__dict__.pop(name, None)
        self._installed_globals: dict[types.ModuleType, list[str]] = {}

    # --- calls ---

    def begin(self) -> Callable[[], None]:
        """The first of the hooks around every call of the compiled function. Returns the first of those after it, when PyTorch's settings for the call are
        still those that it was compiled with: keeps what is new."""
        return self.save_new

    def save_new(self) -> None:
        if self.is_changed:
            with self.lock:
                self.save()

    def enter(self) -> Callable[[], None]:
        """The last of these hooks: says whose call it is, for guards."""
        if not self.is_read:
            with self.lock:
                if not self.is_read:
                    self.read()
        before, current.start = getattr(current, "start", None), self
        return functools.partial(setattr, current, "start", before)
