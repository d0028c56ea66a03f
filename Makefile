# SPDX-License-Identifier: Apache-2.0
# make            build/quern, build/libquern.so, build/libquern_rt.so
# make demo       render, tune, denoise, print PSNR and speed-up
# make check      every test      (SAN=1: with ASan and UBSan, CC=clang: with clang; SAN=thread: those that have threads, with TSan)
# make fuzz       libFuzzer on every parser (FUZZ_TIME=60 seconds each, NAMES="npy png": those)
# make install    PREFIX=/usr/local DESTDIR=
# make wheel      the Python package with library and command in it: build/quern-*.whl
# CROSS=aarch64-linux-gnu: for another processor, in build/aarch64-linux-gnu (or arm-linux-gnueabihf, i686-linux-gnu, riscv64-linux-gnu)
# V=1 shows the commands.
VERSION = 0.1.0
ABI     = 0
CC      = $(if $(CROSS),$(CROSS)-)gcc
BUILD   = build$(if $(filter-out gcc,$(CC)),/$(or $(CROSS),$(notdir $(CC))))$(if $(SAN),/san$(filter-out 1,$(SAN)))$(if $(FUZZ),/fuzz)
PREFIX  = /usr/local
PKGS    = libprotobuf-c jansson sqlite3 libpng zlib
PKGS_RT = libprotobuf-c jansson

WARN  = -Wall -Wextra
WARN += -Wstrict-prototypes -Wmissing-prototypes # one global symbol per plug-in, static first
WARN += -Wswitch-enum                            # a new enum member shows every switch it needs
WARN += -Wvla                                    # stack use stays bounded
WARN += -Wpointer-arith -Wundef -Wshadow
WARN += -Wno-unused-parameter                    # descriptors' callbacks ignore some of theirs
WERROR =
OPT   = -O2 -g
comma := ,
# What an overflow finds in its way; sanitizers have their own. Kernels are built by the library and have none of it.
HARDEN = -fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
ifdef SAN
OPT   = -O1 -g -fno-omit-frame-pointer $(if $(filter thread,$(SAN)),-fsanitize=thread,-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined)
HARDEN =
endif
ifdef FUZZ
OPT  += -fsanitize=fuzzer-no-link
endif

# x86 of 32 bits has SSE2 as its kernels have: x87 would round to other precisions.
MACHINE := $(or $(CROSS),$(shell $(CC) -dumpmachine 2> /dev/null))
SSE2    = $(if $(filter i%86-linux-gnu,$(MACHINE)),-msse2 -mfpmath=sse -Wno-psabi)

# Another processor's libraries are in a folder of their own, where tool/sysroot unpacks Debian's packages; the C library is the compiler's.
INCLUDES =
SYSROOT  = build/sysroot/$(CROSS)
ifdef CROSS
LIBRARIES = $(SYSROOT)/usr/lib/$(CROSS)
PKG_CONFIG = PKG_CONFIG_LIBDIR=$(LIBRARIES)/pkgconfig PKG_CONFIG_SYSROOT_DIR=$(SYSROOT) pkg-config
INCLUDES = -D_FILE_OFFSET_BITS=64 -isystem $(SYSROOT)/usr/include -isystem $(SYSROOT)/usr/include/$(CROSS)
endif
PKG_CONFIG ?= pkg-config

# Asked for once, and only when something is compiled: the packages may not be there yet.
pkg      = $(eval $(1) := $(shell $(PKG_CONFIG) $(2)))$($(1))
PC_CFLAGS  = $(call pkg,PC_CFLAGS,--cflags $(PKGS))
PC_LIBS    = $(call pkg,PC_LIBS,--libs $(PKGS))
PC_LIBS_RT = $(call pkg,PC_LIBS_RT,--libs $(PKGS_RT))
CFLAGS   = $(OPT) $(SSE2) $(HARDEN) -std=gnu11 -fPIC -fvisibility=hidden -ffp-contract=off $(WARN) $(WERROR)
CPPFLAGS = -Isrc -Iinclude -I$(BUILD)/gen $(INCLUDES) $(PC_CFLAGS)
LDFLAGS  = -Wl,-z,relro,-z,now,-z,noexecstack $(if $(CROSS),-L$(LIBRARIES) -Wl$(comma)-rpath-link$(comma)$(LIBRARIES))
LIBS     = $(PC_LIBS) -lpthreadpool -lm -ldl -lpthread
LIBS_RT  = $(PC_LIBS_RT) -lpthreadpool -lm -ldl -lpthread

# The tree is the pipeline; lower folders never include higher ones (tool/layers.txt, tool/check-layers).
FOLDERS_RT = core kir art dev rt request
FOLDERS    = core ir kir art lower op lang dev io import task pass gen family rt request export quant zoo tune plan lab model place view deploy api
# A folder of plug-ins: every file in it but FOLDER.c and FOLDER_*.c exports one descriptor FOLDER_FILE (families: gen_FILE).
PLUGINS    = op pass family lang dev io zoo export import deploy cmd

SRC_cmd = $(wildcard src/cli/*.c)
SRC     = $(foreach f,$(FOLDERS),$(wildcard src/$(f)/*.c))
SRC_RT  = $(foreach f,$(FOLDERS_RT),$(wildcard src/$(f)/*.c)) $(wildcard src/api/api_rt*.c)
GEN     = $(BUILD)/gen/onnx.pb-c.h $(BUILD)/gen/meta.pb-c.h $(PLUGINS:%=$(BUILD)/gen/%.inc) $(BUILD)/gen/conv_data.inc $(BUILD)/gen/plot_script.inc $(BUILD)/gen/tflite_schema.inc $(BUILD)/gen/vulkan_c.inc $(if $(CROSS),$(SYSROOT))
obj     = $(patsubst %.c,$(BUILD)/%.o,$(1))
OBJ     = $(call obj,$(SRC)) $(BUILD)/gen/onnx.pb-c.o $(BUILD)/gen/meta.pb-c.o
OBJ_RT  = $(call obj,$(SRC_RT)) $(BUILD)/gen/meta.pb-c.o
OBJ_CLI = $(call obj,$(SRC_cmd))
TESTS   = $(patsubst test/%.c,$(BUILD)/test/%,$(wildcard test/test_*.c))
BENCHES = $(patsubst bench/%.c,$(BUILD)/bench/%,$(wildcard bench/*.c))
FUZZERS = $(patsubst test/%.c,$(BUILD)/test/%,$(filter-out test/fuzz_main.c,$(wildcard test/fuzz_*.c)))

soname  = -Wl,-soname,$(notdir $(1)).$(ABI)
ifeq ($(SAN),thread) # what has threads that share data
ONLY    = test_cpu test_rt test_loop test_io test_enqueue test_keep test_request
TESTS   = $(ONLY:%=$(BUILD)/test/%)
FUZZERS =
endif

say     = $(if $(V),,@echo '  $(1) $@';)

all: $(BUILD)/quern $(BUILD)/libquern.so $(BUILD)/libquern_rt.so

$(BUILD)/quern: $(OBJ_CLI) $(BUILD)/libquern.so $(BUILD)/sources
	$(call say,LINK)$(CC) $(CFLAGS) -pie $(LDFLAGS) -o $@ $(OBJ_CLI) -L$(BUILD) -lquern -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib' -lm
$(BUILD)/libquern.so: $(OBJ) $(BUILD)/sources
	$(call say,LINK)$(CC) $(CFLAGS) -shared $(LDFLAGS) $(call soname,$@) -o $@ $(OBJ) $(LIBS) && ln -sf $(@F) $@.$(ABI)
$(BUILD)/libquern_rt.so: $(OBJ_RT) $(BUILD)/sources
	$(call say,LINK)$(CC) $(CFLAGS) -shared $(LDFLAGS) $(call soname,$@) -o $@ $(OBJ_RT) $(LIBS_RT) && ln -sf $(@F) $@.$(ABI)
rt: $(BUILD)/libquern_rt.so
$(SYSROOT):
	tool/sysroot $(CROSS) $@
# Of a wheel: with copies of the third-party libraries, tool/wheel.
$(BUILD)/wheel/lib/libquern.so.$(ABI): $(OBJ) $(BUILD)/sources tool/wheel
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(CFLAGS) -shared -s $(LDFLAGS) -Wl,-soname,$(@F) -Wl,-rpath,'$$ORIGIN' -o $@ $(OBJ) $(LIBS)
	@tool/wheel libraries $(BUILD) $(or $(LIBRARIES),$$($(PKG_CONFIG) --variable=libdir jansson))
$(BUILD)/wheel/bin/quern: $(OBJ_CLI) $(BUILD)/wheel/lib/libquern.so.$(ABI)
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(CFLAGS) -pie -s $(LDFLAGS) -o $@ $(OBJ_CLI) $(lastword $^) -Wl,-rpath,'$$ORIGIN/../lib' -Wl,-rpath-link,$(BUILD)/wheel/lib -lm
wheel: $(BUILD)/wheel/bin/quern
	@tool/wheel package $(BUILD) '$(CC)' $(if $(CROSS),$(SYSROOT))/usr/share/doc
$(BUILD)/libquern.a: $(OBJ) $(BUILD)/sources
	$(call say,AR)rm -f $@ && ar rcs $@ $(OBJ)

$(BUILD)/%.o: %.c $(BUILD)/flags | $(GEN)
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/gen/%.pb-c.o: $(BUILD)/gen/%.pb-c.h $(BUILD)/flags
	$(call say,CC)$(CC) $(CPPFLAGS) $(OPT) $(HARDEN) -std=gnu11 -fPIC -fvisibility=hidden -w -c -o $@ $(@:.o=.c)
$(BUILD)/gen/onnx.pb-c.h: /usr/include/onnx/onnx.proto
$(BUILD)/gen/meta.pb-c.h: doc/meta.proto
$(BUILD)/gen/%.pb-c.h:
	@mkdir -p $(@D)
	$(call say,PROTOC)protoc-c -I$(<D) --c_out=$(BUILD)/gen $(<F)
	@touch $@
# Registries, and what was built with what: rewritten only when the text changes.
update = mkdir -p $(@D) && { $(1); } > $@.new && if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
$(BUILD)/gen/%.inc: FORCE
	@$(call update,tool/registry $*)
$(BUILD)/flags: FORCE
	@$(call update,echo '$(CC) $(CPPFLAGS) $(CFLAGS)')
$(BUILD)/sources: FORCE
	@$(call update,echo '$(SRC) $(SRC_RT) $(SRC_cmd)')

$(BUILD)/test/%: $(BUILD)/test/%.o $(BUILD)/libquern.a
	$(call say,LINK)$(CC) $(CFLAGS) -o $@ $< $(BUILD)/libquern.a $(LIBS) -lcmocka
$(BUILD)/test/fake_%.so: $(BUILD)/test/fake_%.o
	$(call say,LINK)$(CC) $(CFLAGS) -shared -o $@ $<
$(patsubst %,$(BUILD)/test/%,test_vulkan test_tune_vulkan test_rt_vulkan): | $(BUILD)/test/fake_vulkan.so
$(patsubst %,$(BUILD)/test/%,test_cuda test_enqueue test_vendor_gemm test_conv_library): | $(BUILD)/test/fake_cuda.so
$(BUILD)/test/fuzz_%: $(BUILD)/test/fuzz_%.o $(BUILD)/libquern.a $(BUILD)/test/fuzz_main.o
	$(call say,LINK)$(CC) $(CFLAGS) -o $@ $< $(if $(FUZZ),-fsanitize=fuzzer,$(BUILD)/test/fuzz_main.o) \
	    $(BUILD)/libquern.a $(LIBS)
$(BUILD)/bench/%: $(BUILD)/bench/%.o $(BUILD)/libquern.a
	$(call say,LINK)$(CC) $(CFLAGS) -o $@ $< $(BUILD)/libquern.a $(LIBS)
$(BUILD)/bench/kernel.o: private CFLAGS += -march=native -ffp-contract=fast
tests: all $(TESTS) $(FUZZERS) $(BUILD)/test/fake_name.so $(if $(SAN),,$(BUILD)/wheel/bin/quern)
benches: all $(BENCHES) # for bench/compare and bench/slow
fuzzers: $(FUZZERS)
fuzz: # libFuzzer, FUZZ_TIME=60 seconds a parser
	+$(MAKE) CC=clang SAN=1 FUZZ=1 fuzzers
	tool/fuzz build/clang/san/fuzz $(NAMES)

# These two start on a machine that may have nothing but make: packages first, then make again, on all processors where nothing else is said.
jobs = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
check:
	tool/deps build test --wanted cross opencl blas python
	+$(MAKE) $(jobs) tests
	CC='$(CC)' ONLY='$(ONLY)' tool/check $(BUILD)
demo:
	tool/deps build demo
	+$(MAKE) $(jobs) all
	tool/demo $(BUILD)

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include
	install $(BUILD)/quern $(DESTDIR)$(PREFIX)/bin/
	ln -sf quern $(DESTDIR)$(PREFIX)/bin/denox # other tools' command lines, see doc/cli.md
	ln -sf quern $(DESTDIR)$(PREFIX)/bin/vkdt-denox
	for l in libquern libquern_rt; do \
	    install $(BUILD)/$$l.so $(DESTDIR)$(PREFIX)/lib/$$l.so.$(VERSION) && \
	    ln -sf $$l.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/$$l.so.$(ABI) && \
	    ln -sf $$l.so.$(ABI) $(DESTDIR)$(PREFIX)/lib/$$l.so || exit 1; done
	install -m 644 include/quern.h include/quern.hpp $(DESTDIR)$(PREFIX)/include/
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' tool/quern.pc.in \
	    > $(DESTDIR)$(PREFIX)/lib/pkgconfig/quern.pc

clean:
	rm -rf $(BUILD)

FORCE:
.PHONY: all rt wheel tests benches fuzzers fuzz check demo install clean FORCE
.SECONDARY:
.DELETE_ON_ERROR:
-include $(OBJ:.o=.d) $(OBJ_CLI:.o=.d) $(TESTS:=.d) $(FUZZERS:=.d) $(BENCHES:=.d)
