#!/bin/busybox sh
# The guest's first process, in the initramfs, where busybox, the kernel modules
# and this is all there is: make the host's root ours, with what is written kept
# in memory, and go on there with setup.sh.
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev

die() {
	echo "guest: $*" >/dev/kmsg
	poweroff -f
}

while read -r module; do
	insmod "/modules/$module" || die "cannot load $module"
done </modules/order

# What others change on the host meanwhile is not seen, or in part: the test
# needs only what stays as it is.
share=trans=virtio,version=9p2000.L,msize=512000
mkdir -p /lower /upper /root
mount -t 9p -o "$share,cache=loose,ro" host /lower || die "no host's root"
mount -t tmpfs -o mode=755 tmpfs /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work \
	overlay /root || die "no overlay"
mount -t tmpfs -o mode=755 tmpfs /root/run
mkdir /root/run/guest
mount -t 9p -o "$share" run /root/run/guest || die "no run directory"
mount --move /proc /root/proc
mount --move /dev /root/dev
. /root/run/guest/settings
exec switch_root /root /bin/bash "$SETUP" || die "no $SETUP"
