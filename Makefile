# KVPool. `sudo make up` and `sudo make check` are the two commands to know;
# `make help` lists the rest. One file, no recursion; VARIANT=asan builds with
# the sanitizers into its own directory.

VARIANT ?= release
BUILD   ?= build
OBJ     := $(BUILD)/$(VARIANT)

CC      ?= cc
PKGS    := libuv libprotobuf-c libxxhash jansson libmicrohttpd libibverbs fuse3 libcurl
WARN    := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes \
           -Wmissing-prototypes -Wvla -Wformat=2
CFLAGS_release := -O2 -g
CFLAGS_asan    := -O1 -g -fsanitize=address,undefined -fno-omit-frame-pointer \
                  -fno-sanitize-recover=undefined
CFLAGS  ?= $(CFLAGS_$(VARIANT))
KV_CPPFLAGS := -I. -I$(OBJ) -D_GNU_SOURCE -DFUSE_USE_VERSION=314 \
           $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
KV_CFLAGS := -std=gnu11 -fPIC -pthread $(WARN) $(CFLAGS)
LIBS    = $(shell pkg-config --libs $(PKGS) 2>/dev/null) -pthread

PB      := $(OBJ)/pool/kvpool.pb-c
# Layers, lowest first; a layer may use those before it.
SRC_pool   := $(wildcard pool/base/*.c pool/*.c)
SRC_master := $(wildcard master/*.c)
SRC_fs     := $(wildcard fs/*.c)
MAINS      := daemon/kvpool_master.c daemon/kvpoold.c
SRC_daemon := $(filter-out $(MAINS),$(wildcard daemon/*.c))
SRC_cli    := $(wildcard tools/cmd_*.c) tools/kvpool.c
objs = $(patsubst %.c,$(OBJ)/%.o,$(1))

O_pool   := $(call objs,$(SRC_pool)) $(PB).o
O_master := $(call objs,$(SRC_master))
O_fs     := $(call objs,$(SRC_fs))
O_daemon := $(call objs,$(SRC_daemon))
O_all    := $(O_daemon) $(O_fs) $(O_master) $(O_pool)

TESTS := $(patsubst tests/%.c,$(OBJ)/tests/%,$(wildcard tests/*_test.c))

$(OBJ)/tests/%: $(OBJ)/tests/%.o $(OBJ)/libkv.a
	$(CC) $(KV_CFLAGS) $(LDFLAGS) -o $@ $^ -lcmocka $(LIBS)

.PHONY: all units
all: $(O_all)
units: $(TESTS)

$(OBJ)/libkv.a: $(O_all)
	@rm -f $@
	ar rcs $@ $^

$(OBJ)/%.o: %.c $(PB).h
	@mkdir -p $(@D)
	$(CC) $(KV_CPPFLAGS) $(KV_CFLAGS) -MMD -MP -c -o $@ $<

$(PB).h $(PB).c &: pool/kvpool.proto
	@mkdir -p $(@D)
	protoc-c --c_out=$(OBJ) pool/kvpool.proto

# Generated code is not held to our warnings.
$(PB).o: $(PB).c
	$(CC) -I$(OBJ) $(KV_CPPFLAGS) -std=gnu11 -fPIC $(CFLAGS) -w -c -o $@ $<

-include $(shell find $(OBJ) -name '*.d' 2>/dev/null)
