#!/bin/bash
# What is installed is built as hardening-check(1) wants it, and the memory with
# objects' bytes is mapped by the one function that keeps it out of core dumps.
# modes: passthrough
. "$(dirname "$0")/../lib/lib.sh"
[ "$KVTEST_VARIANT" = release ] || skip "sanitized programs are built otherwise"
need readelf objdump cc

# What FILE lacks, a word each.
lacks() { # FILE
	local file=$1 headers dynamic symbols
	headers=$(readelf -hlW "$file")
	dynamic=$(readelf -dW "$file")
	symbols=$(readelf -sW --dyn-syms "$file")
	grep -q 'Type: *DYN' <<<"$headers" || echo pie
	[[ $file = *.so ]] || grep -q 'FLAGS_1.* PIE' <<<"$dynamic" || echo pie
	grep -q GNU_RELRO <<<"$headers" || echo relro
	grep -qE 'BIND_NOW|FLAGS_1.* NOW' <<<"$dynamic" || echo bindnow
	grep -q 'GNU_STACK.* RW ' <<<"$headers" || echo noexecstack
	! grep -qE 'LOAD .* RWE ' <<<"$headers" || echo w^x
	grep -q __stack_chk_fail <<<"$symbols" || echo stack-protector
	grep -qE '__[a-z_]+_chk\b' <<<"$symbols" || echo fortify
	objdump -d --no-show-raw-insn "$file" >"$tmp/code"
	# (Not by the note: Debian's start-up code has none, so nothing linked has.)
	grep -q endbr64 < <(grep -A1 -E '<(main|kvpool_open)>:$' "$tmp/code") || echo cf-protection
	# A large frame is touched page by page.
	grep -qE 'orq +\$0x0,(0x0)?\(%rsp\)' "$tmp/code" || echo stack-clash
}

echo "== a program that is built without is seen to be"
cat >"$tmp/weak.c" <<'END'
#include <string.h>
int main(int argc, char **argv)
{
	char buf[20000];
	strcpy(buf, argv[argc - 1]);
	return buf[0];
}
END
cc -O2 -no-pie -U_FORTIFY_SOURCE -fno-stack-protector -fcf-protection=none \
	-fno-stack-clash-protection -Wl,-z,norelro,-z,lazy,-z,execstack \
	-o "$tmp/weak" "$tmp/weak.c" 2>/dev/null
lacks "$tmp/weak" | sort -u >"$tmp/lacks"
printf '%s\n' bindnow cf-protection fortify noexecstack pie relro stack-clash \
	stack-protector | diff - "$tmp/lacks" || fail "of a weak program, other things are seen"

echo "== the programs and the library"
for file in kvpoold kvpool-master kvpool mount.kvpool libkvpool.so; do
	missing=$(lacks "$BIN/$file" | sort -u | tr '\n' ' ')
	[ -z "$missing" ] || fail "$file lacks $missing"
	! command -v hardening-check >/dev/null ||
		hardening-check -q --nocfprotection "$BIN/$file" || fail "hardening-check: $file"
done

echo "== files of objects are mapped in one place"
cd "$(dirname "$0")/../.." || exit 1
# Others: what is kept for the next daemon, records of a take-over, and the master's
# state.
grep -rln --include='*.c' '\bmmap(' pool fs master daemon | sort | tr '\n' ' ' >"$tmp/maps"
[ "$(cat "$tmp/maps")" = "fs/kept.c master/state_rec.c pool/base/map.c pool/conn/handover.c " ] ||
	fail "mmap is called in $(cat "$tmp/maps")"

pass
