# KVPool. `sudo make up` and `sudo make check` are the two commands to know;
# `make help` lists the rest. One file; VARIANT=asan (or tsan, fuzz) builds with
# the sanitizers into a directory of its own.

VARIANT ?= release
BUILD   ?= build
OBJ     := $(BUILD)/$(VARIANT)
# Programs of the release variant are built in $(BUILD) itself, where they are easy to find.
BIN     := $(if $(filter release,$(VARIANT)),$(BUILD),$(OBJ))
JOBS    ?= $(shell nproc)
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
PYTHON_DIR = $(PREFIX)/share/kvpool/python

# For `make up`. Without SIZE, `kvpool up` chooses a quarter of the memory.
MOUNT   ?= /mnt/kvpool
SIZE    ?=

DEPS := gcc make libc6-dev binutils pkg-config libfuse3-dev fuse3 libuv1-dev \
        libibverbs-dev librdmacm-dev libxxhash-dev libprotobuf-c-dev protobuf-c-compiler \
        libjansson-dev libmicrohttpd-dev libcurl4-openssl-dev libssl-dev \
        libcap-ng-dev
DEPS_CHECK := libcmocka-dev attr curl iproute2 jq procps util-linux \
              etcd-server etcd-client socat python3 mandoc shellcheck cppcheck clang-format \
              pyflakes3 mypy git openssl strace zsh prometheus chromium-headless-shell
# For the guest of the RDMA tests. Without these packages the tests are skipped.
DEPS_RDMA  := qemu-system-x86 busybox-static xz-utils zstd ibverbs-providers \
              ibverbs-utils perftest rdmacm-utils
# To build packages, and to install them in a test directory.
DEPS_DEB := dpkg-dev debhelper dh-python fakeroot lintian mmdebstrap systemd git \
            python3-pip python3-setuptools python3-venv python3-wheel
# To check manifests and start their pods.
DEPS_DEPLOY := python3-yaml python3-jsonschema python3-pip util-linux iproute2 e2fsprogs
DEPS_IMAGE := mmdebstrap umoci skopeo patchelf dpkg-dev
# To install the engines, and to compile llama-server.
DEPS_ENGINES := python3 python3-venv ca-certificates g++ cmake

# git >= 2.35 refuses to run as root in another user's checkout.
GIT     := git -c safe.directory='*'
CC      ?= cc
PKGS    := libuv libprotobuf-c libxxhash jansson libmicrohttpd libibverbs \
           librdmacm fuse3 libcurl openssl libcap-ng
WARN    := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes \
           -Wmissing-prototypes -Wvla -Wformat=2
# CI, where the version of the compiler is known: make WERROR=-Werror
WERROR  ?=
CFLAGS_release := -O2 -g
CFLAGS_asan    := -O1 -g -fsanitize=address,undefined -fno-omit-frame-pointer \
                  -fno-sanitize-recover=undefined
# For programs with threads: make VARIANT=tsan units.
CFLAGS_tsan    := -O1 -g -fsanitize=thread -fno-omit-frame-pointer
# Only for fuzzers, whose main program provides the trace function.
CFLAGS_fuzz    := $(CFLAGS_asan) -fsanitize-coverage=trace-pc
CFLAGS  ?= $(CFLAGS_$(VARIANT))
# Only for what is installed: the sanitizers find the same errors, and more.
HARDEN_release := -D_FORTIFY_SOURCE=3 -fstack-protector-strong \
                  -fstack-clash-protection -fcf-protection
HARDEN_LINK_release := -Wl,-z,relro,-z,now,-z,noexecstack
HARDEN      := -U_FORTIFY_SOURCE $(HARDEN_$(VARIANT))
HARDEN_LINK := $(HARDEN_LINK_$(VARIANT))
# Asked of pkg-config when the first object is built and not before: the
# packages may have been installed by an earlier step of the same make.
PKG_CFLAGS = $(eval PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS)))$(PKG_CFLAGS)
PKG_LIBS   = $(eval PKG_LIBS := $(shell pkg-config --libs $(PKGS)))$(PKG_LIBS)
KV_CPPFLAGS = -I. -I$(OBJ) -D_GNU_SOURCE -DFUSE_USE_VERSION=314 $(PKG_CFLAGS)
KV_CFLAGS = -std=gnu11 -fPIC -pthread $(WARN) $(WERROR) $(HARDEN) $(CFLAGS)
LIBS    = -Wl,--as-needed $(PKG_LIBS) -pthread

PB      := $(OBJ)/pool/conn/kvpool.pb-c
# Layers, lowest first; a layer may use those before it.
SRC_pool   := $(wildcard pool/*/*.c)
SRC_master := $(wildcard master/*.c)
SRC_fs     := $(wildcard fs/*.c)
MAINS      := daemon/kvpool_master.c daemon/kvpoold.c
SRC_daemon := $(filter-out $(MAINS),$(wildcard daemon/*.c))
SRC_cli    := $(filter-out tools/mount_kvpool.c,$(wildcard tools/*.c))
objs = $(patsubst %.c,$(OBJ)/%.o,$(1))

O_pool   := $(call objs,$(SRC_pool)) $(PB).o
O_master := $(call objs,$(SRC_master))
O_fs     := $(call objs,$(SRC_fs))
O_daemon := $(call objs,$(SRC_daemon))
O_cli    := $(call objs,$(SRC_cli))
# Of the library alone: public names, each of which is wanted.
O_api    := $(call objs,$(wildcard pool/client/*.c))
O_all    := $(O_daemon) $(O_fs) $(O_master) $(O_pool)

comma := ,
# A program whose source is not there is left out, so that parts can be built.
have = $(if $(wildcard $(1)),$(2))
PROGRAMS := $(call have,daemon/kvpool_master.c,$(BIN)/kvpool-master) \
            $(call have,daemon/kvpoold.c,$(BIN)/kvpoold) \
            $(call have,tools/kvpool.c,$(BIN)/kvpool) \
            $(call have,tools/mount_kvpool.c,$(BIN)/mount.kvpool)
LIBRARIES := $(BIN)/libkvpool.a $(BIN)/libkvpool.so

# Tests: *_test.c are cmocka programs, *_fuzz.c need fuzz_main.c; the files of
# traces/, chaos/ and sweep/ make one program each, and failing.c one that is
# preloaded into daemons; what else has a main is a helper of the it_*.sh scripts
# or a benchmark. Names are unique, and so the outputs are all in $(OBJ)/tests.
TEST_DIRS   := tests/unit tests/sim tests/fuzz tests/traces tests/chaos tests/sweep \
               tests/it tests/bench
SRC_units   := $(wildcard tests/unit/*_test.c tests/sim/*_test.c)
SRC_fuzz    := $(wildcard tests/fuzz/*_fuzz.c)
SRC_engine  := $(wildcard tests/traces/*.c)
SRC_chaos   := $(wildcard tests/chaos/*.c)
SRC_sim     := $(filter-out %_test.c %/bench_sim.c,$(wildcard tests/sim/*.c))
SRC_fake    := $(wildcard tests/unit/fake_verbs*.c)
SRC_kernel  := tests/unit/fs_kernel.c
SRC_with_pki := $(shell grep -ls 'tls_pki\.h' tests/unit/*_test.c)
SRC_on_nodes := $(shell grep -ls 'pool_node_fixture\.h' tests/unit/*_test.c)
SRC_sweep   := $(wildcard tests/sweep/sweep*.c)
SRC_helpers := $(shell grep -ls '^int main\>' tests/it/*.c tests/bench/*.c) \
               tests/sim/bench_sim.c
tests = $(patsubst %.c,$(OBJ)/tests/%,$(notdir $(1)))
# Programs of the wire's next version and the one after, for it_versions.sh: the
# same objects, but for the version and what is unknown to this one.
AHEAD   := $(foreach n,1 2,$(foreach p,kvpoold kvpool-master,$(OBJ)/ahead$(n)/$(p)))
UNITS   := $(call tests,$(SRC_units))
FUZZERS := $(call tests,$(SRC_fuzz))
HELPERS := $(call tests,$(SRC_helpers)) \
           $(if $(SRC_engine),$(OBJ)/tests/engine_traces) \
           $(if $(SRC_chaos),$(OBJ)/tests/chaos) \
           $(if $(SRC_sweep),$(OBJ)/tests/sweep $(OBJ)/tests/failing.so)

.DEFAULT_GOAL := help
.SECONDARY:
.DELETE_ON_ERROR:
.PHONY: help deps deps-check deps-rdma guest-kernels all units fuzzers up down \
        deps-engines deps-deploy check check-rdma check-engines check-deploy chaos bench \
        bench-library bench-l2 bench-put bench-mount bench-multiturn bench-page bench-peers bench-rdma \
        bench-tls sim sweep \
        fuzz-brief lint clean \
        install uninstall completion dist deb deps-deb check-packages image deps-image

help:
	@echo 'sudo make up       install what is missing, build, mount a pool at $(MOUNT)'
	@echo '                   (MOUNT=DIR, SIZE=50G change that)'
	@echo 'sudo make down     unmount and stop it'
	@echo 'sudo make check    install what is missing, build, run all tests (FILTER=regex)'
	@echo 'sudo make check-rdma   only the tests of RDMA, in a guest if there are no'
	@echo '                   devices here (FILTER=regex)'
	@echo 'sudo make check-engines   engines themselves on a pool of two nodes, as their'
	@echo '                   packages have them (FILTER=regex)'
	@echo 'sudo make check-deploy   the manifests of tools/deploy, and their pods in'
	@echo '                   namespaces of this machine (FILTER=regex)'
	@echo 'make all           the programs and libraries, in $(BIN)/ (VARIANT=asan)'
	@echo 'make units         the unit test programs'
	@echo 'sudo make lint     what can be checked of the sources without running them'
	@echo 'make fuzz-brief    every fuzzer for FUZZ_SECONDS (default 5)'
	@echo 'sudo make sweep    each call that may fail does, one at a time'
	@echo 'sudo make chaos    break everything for SECONDS, in the order of SEED'
	@echo 'sudo make bench    ratios to tmpfs and to a plain socket, side by side'
	@echo 'sudo make bench-mount     files on the mount, beside a daemon that only answers'
	@echo 'sudo make bench-library   calls of libkvpool, beside a plain socket'
	@echo 'sudo make bench-peers     the same, and those of Mooncake Store and Redis'
	@echo 'sudo make bench-l2   lmcache bench l2 on the pool, beside a plain tmpfs'
	@echo 'sudo make bench-put  what stores by LMCache'"'"'s local_disk cost, beside disk'
	@echo 'sudo make bench-multiturn   conversations with servers of vLLM or llama.cpp'
	@echo 'sudo make bench-page     the turns of a master whose web page is open'
	@echo 'sudo make bench-tls      what TLS costs, beside pools without it (GUEST=yes: in'
	@echo '                   a guest, also with kTLS)'
	@echo 'sudo make bench-rdma   ratios to perftest, in a guest if there is no RDMA'
	@echo 'sudo make sim      the master with a thousand nodes, simulated (NODES, KEYS,'
	@echo '                   SEED, RUNS); nodes and masters that break (SEEDS)'
	@echo 'sudo make deps     only install what is missing (deps-check: for the tests, too)'
	@echo 'sudo make install  into PREFIX=$(PREFIX), and /sbin/mount.kvpool'
	@echo 'make dist          the sources of HEAD, in $(BUILD)/kvpool-VERSION.tar.gz'
	@echo 'sudo make deb      packages for Debian of HEAD, in $(BUILD)/deb'
	@echo 'sudo make image    a container image of those packages, in $(BUILD)/image/oci'
	@echo 'sudo make check-packages   those packages, installed, upgraded and purged'
	@echo 'make clean         remove $(BUILD)/'

# ---- programs ----

all: $(PROGRAMS) $(LIBRARIES)

LINK = $(CC) $(KV_CFLAGS) $(if $(filter %.so,$@),,-pie) $(HARDEN_LINK) $(LDFLAGS) \
       -o $@

$(BIN)/kvpool-master: $(OBJ)/daemon/kvpool_master.o $(OBJ)/libkv.a
	$(LINK) $^ $(LIBS)
$(BIN)/kvpoold: $(OBJ)/daemon/kvpoold.o $(OBJ)/libkv.a
	$(LINK) $^ $(LIBS)
$(BIN)/kvpool: $(O_cli) $(OBJ)/libkv.a
	$(LINK) $^ $(LIBS)
$(BIN)/mount.kvpool: $(OBJ)/tools/mount_kvpool.o $(OBJ)/libkv.a
	$(LINK) $^ $(LIBS)

$(BIN)/libkvpool.so: $(O_api) $(OBJ)/libkv.a pool/client/kvpool.map
	$(LINK) -shared -Wl,-soname,libkvpool.so.0 \
		-Wl,--version-script=pool/client/kvpool.map \
		$(O_api) $(OBJ)/libkv.a $(LIBS)
	ln -sf libkvpool.so $@.0
# One object in which only the public names are left global.
$(BIN)/libkvpool.a: $(O_api) $(OBJ)/libkv.a
	@rm -f $@
	ld -r -o $(OBJ)/kvpool_whole.o $^
	objcopy -w --keep-global-symbol='kvpool_[a-z]*' $(OBJ)/kvpool_whole.o
	ar rcs $@ $(OBJ)/kvpool_whole.o

$(OBJ)/libkv.a: $(O_all)
	@rm -f $@
	ar qcs $@ $^
# The CLI's parts, for its unit tests.
$(OBJ)/libcli.a: $(O_cli)
	@rm -f $@
	ar qcs $@ $^

COMPILE = $(CC) $(KV_CPPFLAGS) $(CPPFLAGS) $(KV_CFLAGS) -MMD -MP -c -o $@ $<
$(OBJ)/%.o: %.c $(PB).h
	@mkdir -p $(@D)
	$(COMPILE)
vpath %.c $(TEST_DIRS)
$(OBJ)/tests/%.o: private HARDEN =
$(OBJ)/tests/%.o: %.c $(PB).h
	@mkdir -p $(@D)
	$(COMPILE)

$(PB).h $(PB).c &: pool/conn/kvpool.proto
	@mkdir -p $(@D)
	protoc-c --c_out=$(OBJ) pool/conn/kvpool.proto

# The commit, of a checkout or of `make dist`; written only when it has changed.
$(OBJ)/commit.h: FORCE
	@mkdir -p $(@D)
	@if [ -e .git ]; then c=$$($(GIT) rev-parse --short=10 HEAD 2>/dev/null); \
	else c=$$(sed -n 's/.*~[0-9]*\.//p' .version 2>/dev/null); fi; \
	line="#define KVPOOL_COMMIT \"$${c:++$$c}\""; \
	[ "$$line" = "$$(cat $@ 2>/dev/null)" ] || echo "$$line" >$@
$(OBJ)/pool/client/api.o: $(OBJ)/commit.h
.PHONY: FORCE

# The web page, as the bytes of an array.
WEB := $(patsubst daemon/%,$(OBJ)/%.h,$(wildcard daemon/web/*))
$(WEB): $(OBJ)/%.h: daemon/%
	@mkdir -p $(@D)
	od -An -v -tx1 $< | sed 's/ \(..\)/0x\1,/g' >$@
$(OBJ)/daemon/web.o: $(WEB)

# Generated code is not held to our warnings.
$(PB).o: $(PB).c
	$(CC) -I$(OBJ) $(KV_CPPFLAGS) -std=gnu11 -fPIC $(HARDEN) $(CFLAGS) -w -c -o $@ $<

-include $(patsubst %.o,%.d,$(wildcard $(O_all) $(O_cli) $(OBJ)/tests/*.o \
           $(OBJ)/daemon/*.o $(OBJ)/tools/*.o))

# Of shells; only where the programs can run.
COMPLETED  := kvpool kvpoold kvpool-master
COMPLETION := $(foreach p,$(COMPLETED),$(BIN)/completion/bash/$(p) $(BIN)/completion/zsh/_$(p))
completion: $(COMPLETION)
$(COMPLETION): tools/completion/generate tools/completion/completion.bash \
               tools/completion/completion.zsh $(addprefix $(BIN)/,$(COMPLETED))
	@mkdir -p $(@D)
	tools/completion/generate $(BIN)/$(patsubst _%,%,$(@F)) $(notdir $(@D)) >$@

# ---- tests ----

units: $(UNITS) $(HELPERS) $(AHEAD)
fuzzers: $(FUZZERS)

$(OBJ)/ahead%/wire.o: pool/conn/wire.c pool/conn/wire.h
	@mkdir -p $(@D)
	$(CC) $(KV_CPPFLAGS) $(CPPFLAGS) $(KV_CFLAGS) -DPOOL_WIRE_AHEAD=$* -c -o $@ $<
AHEAD_WRAP := -Wl,--wrap=pool_conn_send,--wrap=pool_frame_decode,--wrap=protobuf_c_message_pack,--wrap=protobuf_c_message_get_packed_size
$(OBJ)/ahead%/kvpoold: $(OBJ)/ahead%/wire.o $(OBJ)/daemon/kvpoold.o \
		       $(OBJ)/tests/next_version.o $(OBJ)/libkv.a
	$(LINK) $(AHEAD_WRAP) $^ $(LIBS)
$(OBJ)/ahead%/kvpool-master: $(OBJ)/ahead%/wire.o $(OBJ)/daemon/kvpool_master.o \
		       $(OBJ)/tests/next_version.o $(OBJ)/libkv.a
	$(LINK) $(AHEAD_WRAP) $^ $(LIBS)

$(OBJ)/tests/engine_traces: $(addsuffix .o,$(call tests,$(SRC_engine))) $(OBJ)/libkv.a
	$(LINK) $^ $(LIBS)
$(OBJ)/tests/chaos: $(addsuffix .o,$(call tests,$(SRC_chaos)))
	$(LINK) $^ -pthread
# As programs of others: of the library they have its public names alone.
$(OBJ)/tests/library_%: $(OBJ)/tests/library_%.o $(BIN)/libkvpool.so
	$(LINK) $< -L$(BIN) -lkvpool -Wl,-rpath,$(abspath $(BIN)) -pthread
$(OBJ)/tests/sweep: $(addsuffix .o,$(call tests,$(SRC_sweep)))
	$(LINK) $^
# Never sanitized: it stands between the program and the sanitizer's malloc.
$(OBJ)/tests/failing.so: tests/sweep/failing.c tests/sweep/failing.h
	@mkdir -p $(@D)
	$(CC) $(KV_CPPFLAGS) -std=gnu11 -fPIC -shared $(WARN) -O1 -g \
		-fno-omit-frame-pointer -fno-builtin -o $@ $<
$(OBJ)/tests/%_fuzz: $(OBJ)/tests/%_fuzz.o $(OBJ)/tests/fuzz_main.o $(OBJ)/libkv.a
	$(LINK) $^ $(LIBS)
$(OBJ)/tests/conn_fuzz: private LDFLAGS += -Wl,--wrap=pool_conn_peer_id
# The simulation's own pool/conn/conn.h and the like come before the library's.
$(OBJ)/tests/sim_%_test: $(OBJ)/tests/sim_%_test.o $(addsuffix .o,$(call tests,$(SRC_sim))) \
                         $(OBJ)/libkv.a
	$(LINK) $^ -lcmocka $(LIBS)
# As are the fake libibverbs and librdmacm. (Named one by one, so that the rule
# for all others is never taken for want of a fake's object.)
$(call tests,$(wildcard tests/unit/verbs_*_test.c)): $(OBJ)/tests/%: \
		$(OBJ)/tests/%.o $(addsuffix .o,$(call tests,$(SRC_fake))) $(OBJ)/libkv.a
	$(LINK) $^ -lcmocka $(LIBS)
$(OBJ)/tests/bench_sim: $(OBJ)/tests/bench_sim.o $(addsuffix .o,$(call tests,$(SRC_sim))) \
                        $(OBJ)/libkv.a
	$(LINK) $^ $(LIBS)
# As is the kernel of the mount, of which these have the names that need one.
KERNEL_WRAPS := fuse_session_mount fuse_session_fd fuse_session_unmount \
                fs_mountpoint_prepare fs_guard_start fs_guard_stop \
                fs_guard_mount_now fs_guard_unmount fs_backing_open fs_backing_close \
                fs_epoch_next fuse_lowlevel_notify_inval_entry \
                fuse_lowlevel_notify_inval_inode fuse_reply_buf umount2
KERNEL_LINK := $(addprefix -Wl$(comma)--wrap=,$(KERNEL_WRAPS))
$(OBJ)/tests/fs_kernel_%_test: $(OBJ)/tests/fs_kernel_%_test.o \
                               $(addsuffix .o,$(call tests,$(SRC_kernel))) $(OBJ)/libkv.a
	$(LINK) $(KERNEL_LINK) $^ -lcmocka $(LIBS)
# Tests of whole nodes.
$(call tests,$(SRC_on_nodes)): private LDFLAGS += -Wl,--wrap=pool_conn_send
$(call tests,$(SRC_on_nodes)): $(OBJ)/tests/%: $(OBJ)/tests/%.o \
		$(OBJ)/tests/pool_node_fixture.o $(OBJ)/libkv.a
	$(LINK) $^ -lcmocka $(LIBS)
$(OBJ)/tests/master_nomem_test: private LDFLAGS += -Wl,--wrap=calloc
$(OBJ)/tests/daemon_ktls_test: private LDFLAGS += -Wl,--wrap=tls_kernel_measure
$(OBJ)/tests/fs_notify_test: private LDFLAGS += -Wl,--wrap=pool_node_notified
$(OBJ)/tests/pool_peer_limits_test: private LDFLAGS += -Wl,--wrap=pool_conn_send,--wrap=pool_conn_send_soon,--wrap=pool_conn_send_file,--wrap=pool_conn_peer_id
# The checker of it_chaos.
$(OBJ)/tests/chaos_model_test: $(OBJ)/tests/chaos_model_test.o $(OBJ)/tests/chaos_model.o
	$(LINK) $^ -lcmocka $(LIBS)
# With certificates.
$(call tests,$(SRC_with_pki)): $(OBJ)/tests/%: $(OBJ)/tests/%.o \
		$(OBJ)/tests/tls_pki.o $(OBJ)/libkv.a
	$(LINK) $^ -lcmocka $(LIBS)
$(OBJ)/tests/%: $(OBJ)/tests/%.o $(OBJ)/libcli.a $(OBJ)/libkv.a
	$(LINK) $^ -lcmocka $(LIBS)

# What follows starts make again: a step may need what the one before it
# installed or built.
SUBMAKE = $(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))

check:
	@$(SUBMAKE) deps-check
	@$(SUBMAKE) VARIANT=release all units
	@$(SUBMAKE) VARIANT=asan all units
	@$(SUBMAKE) VARIANT=fuzz fuzzers
	@echo "tests of RDMA are not among these: make check-rdma"
	@BUILD=$(BUILD) GUEST=no tests/run

# Kernels are downloaded before the tests, so that this does not count towards the
# limit of a test. Missing packages and kernels are reported, and the tests that
# need them are skipped.
check-rdma:
	@$(SUBMAKE) deps-check
	@$(SUBMAKE) deps-rdma || echo 'no packages for a guest: tests that need one are skipped'
	@$(SUBMAKE) guest-kernels
	@$(SUBMAKE) VARIANT=release all units
	@BUILD=$(BUILD) OUT=$(BUILD)/check-rdma ALL_SKIPPED=good KVTEST_GUEST_FETCH=no \
		FILTER='$(or $(FILTER),^it_rdma_)' tests/run

# Missing packages are reported, and the tests that need them are skipped. Tests
# that have not begun after ENGINES_SECONDS are skipped as well.
ENGINES_SECONDS ?= 1200
check-engines:
	@$(SUBMAKE) deps-check
	@$(SUBMAKE) deps-engines || echo 'no packages to install engines with'
	@tests/engines/install
	@$(SUBMAKE) VARIANT=release all units
	@BUILD=$(BUILD) OUT=$(BUILD)/check-engines ALL_SKIPPED=good \
		SCRIPTS=tests/engines TOTAL=$(ENGINES_SECONDS) tests/run

# Tests of tools/deploy. kubernetes-validate comes from the Python package index;
# without it, manifests are checked against the schemas in tests/deploy/data.
KUBERNETES_VALIDATE := kubernetes-validate==1.37.0
check-deploy:
	@$(SUBMAKE) deps-check
	@$(SUBMAKE) deps-deploy || echo 'some packages are missing: their tests are skipped'
	@$(SUBMAKE) deps-image || echo 'nothing to make an image with: its test is skipped'
	@[ -d $(BUILD)/deploy-python/kubernetes_validate ] || \
		/usr/bin/python3 -m pip install -q --disable-pip-version-check \
			--root-user-action ignore --target $(BUILD)/deploy-python \
			$(KUBERNETES_VALIDATE) || \
		echo 'kubernetes-validate cannot be installed: the schemas in tests/deploy/data are used'
	@$(SUBMAKE) VARIANT=release all units
	@BUILD=$(BUILD) OUT=$(BUILD)/check-deploy ALL_SKIPPED=good \
		SCRIPTS=tests/deploy tests/run

FUZZ_SECONDS ?= 5
fuzz-brief:
	@$(SUBMAKE) VARIANT=fuzz fuzzers
	@set -e; for f in $(patsubst %.c,$(BUILD)/fuzz/tests/%,$(notdir $(SRC_fuzz))); do \
		$$f $(FUZZ_SECONDS); done

# `make check` includes it, as it_lint.
lint:
	@$(SUBMAKE) deps-check
	@CI=true tests/lint

chaos:
	@$(SUBMAKE) deps-check
	@$(SUBMAKE) VARIANT=release all units
	@SECONDS_OF_CHAOS=$(or $(SECONDS),60) SEED=$(or $(SEED),1) \
		CHAOS_MASTERS=$(or $(MASTERS),1) CHAOS_FAULTS="$(CHAOS_FAULTS)" KVTEST_BUILD=$(BUILD) bash tests/it/it_chaos.sh

# BENCH: options of `kvpool bench`, such as: --only read_4m,write
# Fails every call, one in each run (`make check` fails a sample of them), then
# every second call with sanitizers. SWEEP_VERBOSE=1 prints where the calls are,
# SWEEP_ONLY=regex selects scenarios.
SWEEP = KVTEST_BUILD=$(BUILD) KVTEST_MODE=$(1) KVTEST_VARIANT=$(2) \
        SWEEP_STRIDE=$(3) bash tests/it/$(4).sh
sweep:
	@$(SUBMAKE) deps-check
	@$(SUBMAKE) VARIANT=release all units
	@$(SUBMAKE) VARIANT=asan all units
	@$(call SWEEP,passthrough,release,1,it_sweep)
	@$(call SWEEP,served,release,1,it_sweep)
	@$(call SWEEP,passthrough,release,1,it_sweep_start)
	@$(call SWEEP,passthrough,asan,2,it_sweep)
	@$(call SWEEP,served,asan,2,it_sweep)

# The output is also written to $(BUILD)/bench.md.
MOUNT_BENCHES := $(BUILD)/release/tests/mount_bench $(BUILD)/release/tests/floor
bench:
	@$(SUBMAKE) deps-check
	@$(SUBMAKE) VARIANT=release all $(MOUNT_BENCHES)
	@KVTEST_BUILD=$(BUILD) bash tests/bench/bench.sh $(BENCH)

# ROUNDS=9 FILES=2000
bench-mount:
	@$(SUBMAKE) deps-check
	@$(SUBMAKE) VARIANT=release all $(MOUNT_BENCHES)
	@KVTEST_BUILD=$(BUILD) KVTEST_ROUNDS=$(or $(ROUNDS),9) \
		KVTEST_FILES=$(or $(FILES),2000) bash tests/bench/bench_mount.sh

# KEYS=1000000 ROUNDS=15 ONLY="here tcp small ask look": see its head.
LIBRARY_BENCHES := $(BUILD)/release/tests/library_bench $(BUILD)/release/tests/library_ask
bench-library:
	@$(SUBMAKE) deps-check
	@$(SUBMAKE) VARIANT=release all $(LIBRARY_BENCHES)
	@KVTEST_BUILD=$(BUILD) KVTEST_KEYS=$(or $(KEYS),1000000) \
		KVTEST_ROUNDS=$(or $(ROUNDS),15) \
		KVTEST_ONLY='$(or $(ONLY),here tcp small ask look)' bash tests/bench/bench_library.sh

# KEYS=100000 ROUNDS=15: see its head.
bench-peers:
	@$(SUBMAKE) deps-check
	@tests/engines/install peers
	@$(SUBMAKE) VARIANT=release all $(LIBRARY_BENCHES)
	@KVTEST_BUILD=$(BUILD) KVTEST_KEYS=$(or $(KEYS),100000) \
		KVTEST_ROUNDS=$(or $(ROUNDS),15) bash tests/bench/bench_peers.sh

# KEYS=1000000 PAGES=5 SECONDS=30: see its head.
bench-page:
	@$(SUBMAKE) deps-check
	@$(SUBMAKE) VARIANT=release all $(LIBRARY_BENCHES)
	@KVTEST_BUILD=$(BUILD) KVTEST_KEYS=$(or $(KEYS),1000000) \
		KVTEST_PAGES=$(or $(PAGES),5) KVTEST_SECONDS=$(or $(SECONDS),30) \
		bash tests/bench/bench_page.sh

# ROUNDS=9 MODES="plain tls": see its head.
bench-tls:
	@$(SUBMAKE) deps-check
	@$(SUBMAKE) VARIANT=release all $(BUILD)/release/tests/tls_bench
	@KVTEST_BUILD=$(BUILD) KVTEST_ROUNDS=$(or $(ROUNDS),$(if $(GUEST),3,9)) \
		KVTEST_MODES="$(or $(MODES),$(if $(GUEST),plain tls ktls))" \
		$(if $(GUEST),KVTEST_TOUCH=1 tests/guest/run --guest \
			--kernel passthrough --rxe 0 --memory 8G --limit 3600) \
		bash tests/bench/bench_tls.sh

# KEYS=16 IN_FLIGHT=4 SIZE_KB=2048 ROUNDS=7 TURNS=3; ROUNDS=15 REQUESTS=2 CHUNKS=4
# DENSE=8 DIRECT= DISK=/var/tmp: see their heads.
bench-l2 bench-put:
	@$(SUBMAKE) deps-check
	@$(SUBMAKE) deps-engines
	@tests/engines/install python
	@$(SUBMAKE) VARIANT=release all
	@KVTEST_BUILD=$(BUILD) bash tests/engines/$(subst -,_,$@).sh

# ENGINE=llama TABLE=turns VARIANTS="none mount adapter" ROUNDS=2: see its head.
bench-multiturn:
	@$(SUBMAKE) deps-check
	@$(SUBMAKE) deps-engines
	@tests/engines/install $(if $(filter llama,$(ENGINE)),llama,python peers)
	@$(SUBMAKE) VARIANT=release all
	@KVTEST_BUILD=$(BUILD) bash tests/engines/bench_multiturn.sh

# ROUNDS=5 SIZES="1 4 32" BUSY=0: see its head.
bench-rdma:
	@$(SUBMAKE) deps-check
	@$(SUBMAKE) deps-rdma
	@$(SUBMAKE) VARIANT=release all $(BUILD)/release/tests/bench_rdma \
		$(BUILD)/release/tests/library_bench
	@KVTEST_BUILD=$(BUILD) KVTEST_MODE=$(or $(MODE),passthrough) \
		KVTEST_ROUNDS=$(or $(ROUNDS),5) KVTEST_SIZES="$(or $(SIZES),1 4 32)" \
		KVTEST_BUSY=$(or $(BUSY),0) \
		bash tests/bench/bench_rdma.sh

# Then small pools in which everything goes wrong, one after the other: SEEDS.
sim:
	@$(SUBMAKE) deps-check
	@$(SUBMAKE) VARIANT=release $(BUILD)/release/tests/bench_sim \
		$(BUILD)/release/tests/sim_nodes_test
	@$(BUILD)/release/tests/bench_sim $(or $(NODES),1000) \
		$(or $(KEYS),5000000) $(or $(SEED),1) $(or $(RUNS),1)
	@tests/sim/sim_nodes.sh $(BUILD)/release/tests/sim_nodes_test \
		$(or $(SEEDS),100000) $(JOBS)

# ---- packages ----

# If dpkg reports that all are installed, this does nothing and needs no root.
define INSTALL_MISSING
set -e; \
missing=; \
for p in $(1); do \
	dpkg-query -W -f='$${db:Status-Status}\n' $$p 2>/dev/null | \
		grep -qx installed || missing="$$missing $$p"; \
done; \
if [ -n "$$missing" ]; then \
	if [ "$$(id -u)" != 0 ]; then \
		echo "missing packages; run as root: apt-get install$$missing" >&2; \
		exit 1; \
	fi; \
	echo "installing:$$missing"; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get install -y -qq --no-install-recommends $$missing >/dev/null || { \
		apt-get update -qq; \
		apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	}; \
fi
endef

deps:
	@$(call INSTALL_MISSING,$(DEPS))
deps-check:
	@$(call INSTALL_MISSING,$(DEPS) $(DEPS_CHECK))
deps-rdma:
	@$(call INSTALL_MISSING,$(DEPS_RDMA))
deps-engines:
	@$(call INSTALL_MISSING,$(DEPS_ENGINES))
deps-image:
	@$(call INSTALL_MISSING,$(DEPS_IMAGE))
deps-deploy:
	@$(call INSTALL_MISSING,$(DEPS_DEPLOY))
deps-deb:
	@$(call INSTALL_MISSING,$(DEPS) $(DEPS_DEB))

# 0.2.0 where the tag v0.2.0 is; else 0.2.0~COMMITS.COMMIT, which is before it.
# The sources of REV (a commit) are packed.
REV ?= HEAD
RELEASE = $(shell $(GIT) show $(REV):pool/kvpool.h | \
	sed -n 's/^\#define KVPOOL_VERSION "\(.*\)"/\1/p')
VERSION = $(if $(wildcard .git),$(shell \
	$(GIT) describe --exact-match --match 'v$(RELEASE)' $(REV) >/dev/null 2>&1 && \
		echo '$(RELEASE)' || echo "$(RELEASE)~$$($(GIT) rev-list --count $(REV)).$$( \
		$(GIT) rev-parse --short=10 $(REV))"),$(file <.version))

# The file .version replaces `git describe`. The same commit gives the same bytes.
dist:
	@[ -e .git ] || { echo 'make dist: needs a git checkout' >&2; exit 1; }
	@mkdir -p $(BUILD)
	@v='$(VERSION)'; $(GIT) archive --prefix=kvpool-$$v/ \
		--add-virtual-file=kvpool-$$v/.version:$$v -o $(BUILD)/kvpool-$$v.tar $(REV) && \
		gzip -nf $(BUILD)/kvpool-$$v.tar && echo $(BUILD)/kvpool-$$v.tar.gz

deb:
	@$(SUBMAKE) deps-deb
	@BUILD=$(BUILD) tools/debian/build $(DEB_TAR)
# A container image of those packages: an OCI layout in build/image/oci.
image:
	@$(SUBMAKE) deps-image
	@BUILD=$(BUILD) tools/deploy/image/build
# Without its tools, or the time to build it, the tests are skipped.
PREPARE_SECONDS ?= 1800
check-packages:
	@$(SUBMAKE) deps-check
	@rm -rf $(BUILD)/packages
	@if ! $(SUBMAKE) deps-deb; then mkdir -p $(BUILD)/packages; \
		echo 'nothing to make packages with' >$(BUILD)/packages/no-root; \
	else BUILD=$(BUILD) timeout $(PREPARE_SECONDS) tests/packages/prepare || { \
		[ $$? = 124 ] && echo 'not prepared within $(PREPARE_SECONDS) s' \
			>$(BUILD)/packages/no-root; }; fi
	@BUILD=$(BUILD) OUT=$(BUILD)/check-packages ALL_SKIPPED=good \
		SCRIPTS=tests/packages tests/run

# Succeeds without packages, too: tests that need one are skipped and say why.
guest-kernels:
	@for k in stable passthrough; do \
		tests/guest/run --fetch --kernel $$k || [ $$? = 77 ] || exit 1; \
	done

# ---- running and installing ----

up:
	@$(SUBMAKE) deps
	@$(SUBMAKE) all
	@mkdir -p $(MOUNT)
	@$(BIN)/kvpool up --mount $(MOUNT) $(if $(SIZE),--store-size $(SIZE))
	@echo '   use    cp FILE $(MOUNT)/; point an engine'"'"'s cache directory at $(MOUNT)'
	@echo '   watch  $(BIN)/kvpool status; df -h $(MOUNT); cat $(MOUNT)/.kvpool/status'
	@echo '   stop   make down$(if $(filter-out /mnt/kvpool,$(MOUNT)), MOUNT=$(MOUNT))'

down:
	@$(BIN)/kvpool down --mount $(MOUNT)

MANPAGES := tools/kvpool.1 pool/kvpool.3 fs/kvpool.7 daemon/kvpoold.8 \
            daemon/kvpool-master.8 tools/mount.kvpool.8
MAN_DIR  := $(DESTDIR)$(PREFIX)/share/man

BASH_DIR := $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSH_DIR  ?= $(PREFIX)/share/zsh/site-functions

install: all completion
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(LIBDIR) \
		$(DESTDIR)$(PREFIX)/include $(DESTDIR)/sbin
	for page in $(MANPAGES); do \
		install -D -m 644 $$page -t $(MAN_DIR)/man$${page##*.}; \
	done
	install -m 755 $(PROGRAMS) $(DESTDIR)$(PREFIX)/bin
	install -D -m 644 $(filter $(BIN)/completion/bash/%,$(COMPLETION)) -t $(BASH_DIR)
	install -D -m 644 $(filter $(BIN)/completion/zsh/%,$(COMPLETION)) -t $(DESTDIR)$(ZSH_DIR)
	install -m 644 $(BIN)/libkvpool.a $(DESTDIR)$(LIBDIR)
	install -m 644 $(BIN)/libkvpool.so $(DESTDIR)$(LIBDIR)/libkvpool.so.0
	ln -sf libkvpool.so.0 $(DESTDIR)$(LIBDIR)/libkvpool.so
	install -m 644 pool/kvpool.h $(DESTDIR)$(PREFIX)/include
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	v=$$(sed -n 's/^#define KVPOOL_VERSION "\(.*\)"/\1/p' pool/kvpool.h); \
	sed -e "s|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$$v|" \
		-e 's|@LIBS@|$(PKG_LIBS) -pthread|' pool/client/kvpool.pc.in \
		>$(DESTDIR)$(LIBDIR)/pkgconfig/kvpool.pc
	install -d $(DESTDIR)$(PYTHON_DIR)/kvpool
	install -m 644 tools/python/pyproject.toml tools/python/setup.py \
		$(DESTDIR)$(PYTHON_DIR)
	install -m 644 $(wildcard tools/python/kvpool/*.py) tools/python/kvpool/py.typed \
		$(DESTDIR)$(PYTHON_DIR)/kvpool
	ln -sf $(PREFIX)/bin/mount.kvpool $(DESTDIR)/sbin/mount.kvpool

uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,$(notdir $(PROGRAMS))) \
		$(addprefix $(DESTDIR)$(LIBDIR)/libkvpool.,a so so.0) \
		$(DESTDIR)$(PREFIX)/include/kvpool.h \
		$(DESTDIR)$(LIBDIR)/pkgconfig/kvpool.pc \
		$(foreach p,$(MANPAGES),$(MAN_DIR)/man$(subst .,,$(suffix $(p)))/$(notdir $(p))) \
		$(addprefix $(BASH_DIR)/,$(COMPLETED)) \
		$(addprefix $(DESTDIR)$(ZSH_DIR)/_,$(COMPLETED)) \
		$(DESTDIR)/sbin/mount.kvpool
	rm -rf $(DESTDIR)$(PYTHON_DIR)

clean:
	rm -rf $(BUILD)
