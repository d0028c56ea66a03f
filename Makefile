# SPDX-License-Identifier: Apache-2.0
# make            build/quern, build/libquern.so, build/libquern_rt.so
# make demo       render, tune, denoise, print PSNR and speed-up
# make check      every test      (SAN=1: with ASan and UBSan, CC=clang: with clang)
# make install    PREFIX=/usr/local DESTDIR=
CC      = gcc
BUILD   = build
PREFIX  = /usr/local
PKGS    = libprotobuf-c jansson sqlite3 libpng
PKGS_RT = jansson

WARN  = -Wall -Wextra
WARN += -Wstrict-prototypes -Wmissing-prototypes # one global symbol per plug-in, static first
WARN += -Wswitch-enum                            # a new enum member shows every switch it needs
WARN += -Wvla                                    # stack use stays bounded
WARN += -Wpointer-arith -Wundef -Wshadow
WARN += -Wno-unused-parameter                    # descriptors' callbacks ignore some of theirs
WERROR =
OPT   = -O2 -g
ifdef SAN
OPT   = -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
BUILD := $(BUILD)/san
endif

CFLAGS   = $(OPT) -std=gnu11 -fPIC -fvisibility=hidden -ffp-contract=off $(WARN) $(WERROR)
CPPFLAGS = -Isrc -Iinclude -I$(BUILD)/gen $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
LIBS     = $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lpthreadpool -lm -ldl -lpthread
LIBS_RT  = $(shell pkg-config --libs $(PKGS_RT) 2>/dev/null) -lpthreadpool -lm -ldl -lpthread

# The tree is the pipeline; lower folders never include higher ones (tool/layers.txt, tool/check-layers).
FOLDERS_RT = core kir art dev rt
FOLDERS    = core ir kir art op lang dev io import pass gen rt export zoo tune plan report api
# A folder of plug-ins: every file in it but FOLDER.c and FOLDER_*.c exports one descriptor FOLDER_FILE.
PLUGINS    = op pass gen lang dev io zoo export import cmd

SRC_cmd = $(wildcard src/cli/*.c)
SRC     = $(foreach f,$(FOLDERS),$(wildcard src/$(f)/*.c))
SRC_RT  = $(foreach f,$(FOLDERS_RT),$(wildcard src/$(f)/*.c)) src/api/api_rt.c
GEN     = $(BUILD)/gen/onnx.pb-c.h $(PLUGINS:%=$(BUILD)/gen/%.inc)
obj     = $(patsubst %.c,$(BUILD)/%.o,$(1))
OBJ     = $(call obj,$(SRC)) $(BUILD)/gen/onnx.pb-c.o
OBJ_RT  = $(call obj,$(SRC_RT))
OBJ_CLI = $(call obj,$(SRC_cmd))
TESTS   = $(patsubst test/%.c,$(BUILD)/test/%,$(wildcard test/test_*.c))

all: $(BUILD)/quern $(BUILD)/libquern.so $(BUILD)/libquern_rt.so

$(BUILD)/quern: $(OBJ_CLI) $(BUILD)/libquern.so
	$(CC) $(CFLAGS) -o $@ $(OBJ_CLI) -L$(BUILD) -lquern -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib' -lm
$(BUILD)/libquern.so: $(OBJ)
	$(CC) $(CFLAGS) -shared -o $@ $(OBJ) $(LIBS)
$(BUILD)/libquern_rt.so: $(OBJ_RT)
	$(CC) $(CFLAGS) -shared -o $@ $(OBJ_RT) $(LIBS_RT)
$(BUILD)/libquern.a: $(OBJ)
	rm -f $@ && ar rcs $@ $(OBJ)

$(BUILD)/%.o: %.c | $(GEN)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/gen/onnx.pb-c.o: $(BUILD)/gen/onnx.pb-c.c
	$(CC) $(CPPFLAGS) $(OPT) -std=gnu11 -fPIC -w -c -o $@ $<
$(BUILD)/gen/onnx.pb-c.c: $(BUILD)/gen/onnx.pb-c.h
$(BUILD)/gen/onnx.pb-c.h: /usr/include/onnx/onnx.proto
	@mkdir -p $(@D)
	protoc-c -I/usr/include/onnx --c_out=$(BUILD)/gen onnx.proto
# Registries: rewritten only when the list of files changes.
$(BUILD)/gen/%.inc: FORCE
	@mkdir -p $(@D)
	@tool/registry $* > $@.new && { cmp -s $@.new $@ && rm $@.new || mv $@.new $@; }

$(BUILD)/test/%: $(BUILD)/test/%.o $(BUILD)/libquern.a
	$(CC) $(CFLAGS) -o $@ $< $(BUILD)/libquern.a $(LIBS) -lcmocka
check: all $(TESTS)
	tool/check $(BUILD)

demo: all
	tool/demo $(BUILD)

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include
	install $(BUILD)/quern $(DESTDIR)$(PREFIX)/bin/
	install $(BUILD)/libquern.so $(BUILD)/libquern_rt.so $(DESTDIR)$(PREFIX)/lib/
	install -m 644 include/quern.h $(DESTDIR)$(PREFIX)/include/
	sed 's|@PREFIX@|$(PREFIX)|' tool/quern.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/quern.pc

clean:
	rm -rf $(BUILD)

FORCE:
.PHONY: all check demo install clean FORCE
.SECONDARY:
-include $(OBJ:.o=.d) $(OBJ_CLI:.o=.d) $(TESTS:=.d)
