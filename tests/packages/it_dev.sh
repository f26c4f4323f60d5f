#!/bin/bash
# A program is compiled with what libkvpool-dev installs, by pkg-config, with the shared
# and with the static library; it puts and gets an object.
# limit: 660
. "$(dirname "$0")/../lib/lib.sh"
packages=$KVTEST_BUILD/packages
need gcc pkg-config dpkg-deb
ls "$packages"/new/libkvpool-dev_*.deb >/dev/null 2>&1 || skip "no packages in $packages/new"

for p in "$packages"/new/{kvpool-master,kvpool-node,libkvpool0,libkvpool-dev}_*.deb; do
	dpkg-deb -x "$p" "$tmp/debian"
done
cat >"$tmp/use.c" <<'END'
#include <kvpool.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct kvpool_options options = {
		.struct_size = sizeof(options),
		.at = argc > 1 ? argv[1] : "",
	};
	char buf[] = "bytes", got[8] = "";
	struct kvpool_ns *ns;
	struct kvpool *pool;

	if (kvpool_connect(&options, &pool) ||
	    kvpool_register_buffer(pool, buf, sizeof(buf)) ||
	    kvpool_register_buffer(pool, got, sizeof(got)) ||
	    kvpool_open_ns(pool, "ns", NULL, &ns) ||
	    kvpool_put_from(ns, argv[2], strlen(argv[2]), buf, 5, 0) ||
	    kvpool_get_into(ns, argv[2], strlen(argv[2]), got, sizeof(got), 0) != 5 ||
	    strcmp(got, buf)) {
		fprintf(stderr, "%s\n", kvpool_last_error());
		return 1;
	}
	kvpool_close_ns(ns);
	return kvpool_close(pool) != 0;
}
END
# Only what the packages bring, for libkvpool itself.
PKG_CONFIG_PATH=$(dirname "$(find "$tmp/debian/usr/lib" -name kvpool.pc)")
export PKG_CONFIG_PATH
lib=$(dirname "$PKG_CONFIG_PATH")
[ "$(pkg-config --modversion kvpool)" = "$(sed -n 's/^#define KVPOOL_VERSION "\(.*\)"/\1/p' \
	"$tmp/debian/usr/include/kvpool.h")" ] || fail "version $(pkg-config --modversion kvpool)"
# shellcheck disable=SC2046
gcc -Wall -Wextra -Werror "$tmp/use.c" -I"$tmp/debian/usr/include" -L"$lib" \
	$(pkg-config --cflags --libs kvpool) -o "$tmp/shared"
mv "$lib/libkvpool.so" "$tmp/aside.so"
# shellcheck disable=SC2046
gcc -Wall -Wextra -Werror "$tmp/use.c" -I"$tmp/debian/usr/include" -L"$lib" \
	$(pkg-config --static --cflags --libs kvpool) -o "$tmp/static"
BIN=$tmp/debian/usr/bin PATH=$tmp/debian/usr/bin:$PATH
start_master
start_node a
! ldd "$tmp/static" | grep libkvpool || fail "it needs the shared library"
LD_LIBRARY_PATH=$lib ldd "$tmp/shared" >"$tmp/needs"
grep -q "libkvpool.so.0 => $lib/" "$tmp/needs" || fail "another library"
LD_LIBRARY_PATH=$lib "$tmp/shared" "${listen[master]}" k.shared
"$tmp/static" "${listen[master]}" k.static
for how in shared static; do
	wait_until 10 eval 'cmp -s <(printf bytes) "${mount[a]}/ns/k.$how"'
done
pass
