#!/bin/sh
# Turns a fresh bootstrap into the guest: run by mmdebstrap with the root directory as the only
# argument. Inputs from the environment: SVC_OVERLAY, SVC_AGENT, SVC_AGENT_SERVER (directories),
# SVC_BUN (a binary), SVC_TOKEN (a file), SVC_GUEST_DNS (addresses separated by spaces).
set -eu
root=$1

# Files of ours.
cp -r --no-preserve=ownership "$SVC_OVERLAY/." "$root/"
chmod 440 "$root/etc/sudoers.d/user"
mkdir -p "$root/opt/svc/agent/shells" "$root/opt/svc/agentserver" "$root/var/log/svc"
cp "$SVC_AGENT"/*.py "$root/opt/svc/agent/"
cp "$SVC_AGENT"/shells/*.py "$root/opt/svc/agent/shells/"
cp "$SVC_AGENT_SERVER"/*.py "$root/opt/svc/agentserver/"
install -m 600 "$SVC_TOKEN" "$root/opt/svc/initial-token"
install -m 755 "$SVC_BUN" "$root/usr/local/bin/bun"
ln -sf bun "$root/usr/local/bin/bunx"
chroot "$root" python3 -m compileall -q --invalidation-mode unchecked-hash \
    /opt/svc/agent /opt/svc/agentserver

# The user of the sandbox, and names that every clone replaces when it is adopted.
chroot "$root" useradd --create-home --uid 1000 --shell /bin/bash user
chroot "$root" passwd --quiet --delete root
echo sandbox > "$root/etc/hostname"
printf '127.0.0.1 localhost\n::1 localhost\n127.0.1.1 sandbox\n' > "$root/etc/hosts"
rm -f "$root/etc/resolv.conf"
for address in $SVC_GUEST_DNS; do echo "nameserver $address"; done > "$root/etc/resolv.conf"
rm -f "$root"/etc/ssh/ssh_host_*
(umask 077; : > "$root/etc/ssh/ssh_host_ed25519_key")
: > "$root/etc/ssh/ssh_host_ed25519_key.pub"
: > "$root/etc/fstab"

# Only what a sandbox needs runs; the rest would slow the boot, wake the idle guest, or touch
# memory that clones copy.
units() { chroot "$root" systemctl --quiet "$@"; }
units set-default multi-user.target
units enable svc-agent.service svc-network.service svc-noatime.service
for unit in ssh.service ssh.socket; do units disable "$unit" 2>/dev/null || true; done
for unit in \
    apt-daily.timer apt-daily.service apt-daily-upgrade.timer apt-daily-upgrade.service \
    dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer man-db.timer \
    motd-news.timer systemd-tmpfiles-clean.timer systemd-networkd.service \
    systemd-networkd.socket systemd-networkd-wait-online.service systemd-resolved.service \
    systemd-timesyncd.service systemd-logind.service systemd-pstore.service \
    systemd-update-utmp.service systemd-update-utmp-runlevel.service \
    systemd-machine-id-commit.service systemd-firstboot.service systemd-modules-load.service \
    systemd-fsck-root.service systemd-random-seed.service systemd-ask-password-wall.path \
    systemd-ask-password-console.path systemd-binfmt.service systemd-journal-flush.service \
    systemd-sysusers.service systemd-tmpfiles-setup-dev.service systemd-remount-fs.service \
    systemd-user-sessions.service systemd-boot-system-token.service systemd-initctl.socket \
    systemd-journald-audit.socket proc-sys-fs-binfmt_misc.automount dev-hugepages.mount \
    dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount \
    sys-fs-fuse-connections.mount kmod-static-nodes.service getty@tty1.service \
    console-getty.service serial-getty@ttyS0.service getty.target getty-static.service \
    keyboard-setup.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
# Programs that look, at each boot, for what no sandbox has. What a user may come to need stays:
# fstab, scripts of System V, rc.local.
mkdir -p "$root/etc/systemd/system-generators"
for generator in bless-boot cryptsetup debug getty gpt-auto hibernate-resume run system-update \
    veritysetup; do
    ln -s /dev/null "$root/etc/systemd/system-generators/systemd-$generator-generator"
done

# The package cache: the lists of the archive and apt's index over them, so that the first install
# needs no update.
chroot "$root" apt-cache gencaches -qq || true

# What was only needed to get here.
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/usr/share/man/* "$root"/var/log/apt \
    "$root"/var/log/dpkg.log "$root"/var/log/bootstrap.log
