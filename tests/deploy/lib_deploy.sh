# What the tests share that start pods. Sourced instead of lib.sh, or after it.
declare -F start_node >/dev/null || . "$(dirname "${BASH_SOURCE[0]}")/../lib/lib.sh"
need ip nsenter unshare setpriv curl setfattr
PYTHON=/usr/bin/python3
need $PYTHON
$PYTHON -c 'import yaml' 2>/dev/null || skip "no python3-yaml"
[ "$(id -u)" = 0 ] || skip "namespaces and mounts need root"
grep -qw overlay /proc/filesystems || skip "no overlay filesystem"
[ -w /sys/fs/cgroup/memory/cgroup.procs ] ||
	skip "no hierarchy of memory cgroups (v1) to make pods' limits in"
[ "$(uname -m)" = x86_64 ] || skip "container.py knows the system calls of x86-64 only"

# Runs a program of this directory where all that it starts and mounts ends with it.
in_namespaces() { # PROGRAM [ARGUMENT...]
	local here status=0
	here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
	export KVDEPLOY_ID=$$
	PYTHONPATH=$here:$here/../bench PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
		unshare --mount --pid --fork --kill-child --mount-proc --propagation private \
		$PYTHON -X faulthandler "$here/$1" "$tmp" "$BIN" "${@:2}" || status=$?
	# Killed, it could not remove them.
	find "/sys/fs/cgroup/memory/kvdeploy-$$" -depth -type d -exec rmdir {} + 2>/dev/null || :
	chattr -i "$tmp"/hosts/*/var/lib/kvpool/mnt/pool 2>/dev/null || :
	[ $status = 0 ] || fail "$1 ended with $status"
	check_logs
}
