#!/bin/bash
# Masters and nodes use an etcd that wants certificates, and users with passwords:
# they elect, take over, and go on when tokens, certificates, CAs and passwords
# are replaced. What is wrong is refused with a line that says what.
# limit: 180
# alone
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need etcd etcdctl jq curl openssl

# ---- certificates ----

make_ca() { # NAME
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
		-days 2 -subj "/CN=$1" -keyout "$tmp/$1.key" -out "$tmp/$1.crt" \
		2>>"$tmp/openssl"
}
# Replaces FILE.crt and FILE.key. Without a common name: etcd's gateway refuses one.
issue() { # CA FILE SAN [SUBJECT]
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
		-subj "${4:-/}" -keyout "$2.key.new" \
		-out "$tmp/csr" 2>>"$tmp/openssl"
	openssl x509 -req -in "$tmp/csr" -CA "$tmp/$1.crt" -CAkey "$tmp/$1.key" \
		-CAcreateserial -days 2 -out "$2.crt.new" \
		-extfile <(echo "subjectAltName=critical,$3") 2>>"$tmp/openssl"
	chmod 600 "$2.key.new"
	mv "$2.key.new" "$2.key"
	mv "$2.crt.new" "$2.crt"
}
make_ca ca
make_ca other
cp "$tmp/ca.crt" "$tmp/trusted.crt"	# what the masters are given
issue ca "$tmp/etcd" IP:127.0.0.1
issue ca "$tmp/client" DNS:client
write_secret() { # FILE TEXT
	(umask 077 && echo "$2" >"$1")
}
write_secret "$tmp/password" first

# ---- etcd ----

free_port; etcd_port=$port
free_port; etcd_peer_port=$port
url=https://127.0.0.1:$etcd_port
start_etcd() { # CA of its clients
	launch etcd etcd --data-dir "$tmp/etcd.data" --log-level error \
		--listen-client-urls "$url" --advertise-client-urls "$url" \
		--listen-peer-urls "http://127.0.0.1:$etcd_peer_port" \
		--initial-advertise-peer-urls "http://127.0.0.1:$etcd_peer_port" \
		--initial-cluster "default=http://127.0.0.1:$etcd_peer_port" \
		--client-cert-auth --trusted-ca-file "$tmp/$1.crt" \
		--cert-file "$tmp/etcd.crt" --key-file "$tmp/etcd.key"
	wait_until 20 etcd_answers
}
with_certs=(--cacert "$tmp/trusted.crt" --cert "$tmp/client.crt" --key "$tmp/client.key")
etcd_answers() {
	curl -sf --noproxy '*' --max-time 1 "${with_certs[@]}" "$url/health" >/dev/null
}
as_root=()
ctl() { # ARGUMENT...
	ETCDCTL_API=3 etcdctl --endpoints "$url" "${with_certs[@]}" \
		"${as_root[@]}" "$@" >>"$tmp/ctl" 2>&1
}
start_etcd ca
ctl user add root:secret
ctl user add 'kv pool:first'
ctl user add nobody:first
ctl role add root
ctl user grant-role root root
ctl role add pool
ctl role grant-permission pool readwrite --prefix=true /kvpool/it/
ctl user grant-role 'kv pool' pool
ctl user add reader:first
ctl role add reading
ctl role grant-permission reading read --prefix=true /kvpool/it/
ctl user grant-role reader reading
ctl auth enable
as_root=(--user root:secret)

# ---- masters ----

secure=(--etcd "$url" --cluster it --etcd-ca "$tmp/trusted.crt"
	--etcd-cert "$tmp/client.crt" --etcd-key "$tmp/client.key"
	--etcd-user "kv pool" --etcd-password-file "$tmp/password")
masters=(m1 m2)
start_one() { # NAME
	local name=$1
	if [ -z "${listen[$name]:-}" ]; then
		free_port; listen[$name]=127.0.0.1:$port
		free_port; admin[$name]=127.0.0.1:$port
	fi
	launch "$name" kvpool-master --foreground --listen "${listen[$name]}" \
		--admin "${admin[$name]}" "${secure[@]}"
	wait_until 10 healthy "$name"
}
healthy() { http "${admin[$1]}/healthz" >/dev/null 2>&1; }
leads() { # NAME...: sets $leader
	for leader; do
		! is_ready "$leader" || return 0
	done
	return 1
}
standby_of() { # NAME
	[ "$1" = m1 ] && echo m2 || echo m1
}
joined() { has_metric "${admin[$1]}" kvpool_node_master_connected 1; }
logins() { metric "${admin[$1]}" kvpool_etcd_logins_total; }
# etcd has what was made last, and the masters reach it.
works() { # DIRECTORY
	wait_until 15 leads "${masters[@]}"
	wait_until 10 joined a
	mkdir "${mount[a]}/$1"
	sync "${mount[a]}"
	wait_until 10 all_healthy
}
all_healthy() {
	local m
	for m in "${masters[@]}"; do
		[ "$(status_json "$m" .election.etcd.healthy)" = true ] || return 1
	done
}

for m in "${masters[@]}"; do start_one "$m"; done
wait_until 10 leads "${masters[@]}"
# The last of options given twice counts. A node only reads.
write_secret "$tmp/reader" first
start_node a "${secure[@]}" --etcd-user reader --etcd-password-file "$tmp/reader"
echo "== an election, by https and as a user; status and metrics show both"
works one
for m in "${masters[@]}"; do
	[ "$(status_json "$m" .election.etcd.tls)" = true ]
	[ "$(status_json "$m" .election.etcd.user)" = "kv pool" ]
	has_metric "${admin[$m]}" kvpool_etcd_tls 1
	metric_at_least "${admin[$m]}" kvpool_etcd_certificate_expires_seconds 86400
	metric_at_least "${admin[$m]}" kvpool_etcd_logins_total 1
done
! grep -rq first "$tmp"/m?.log "$tmp"/a.log || fail "the password is in a log"

echo "== kill -9 of the leader: the other one has the state"
old=$leader
kill9 "$old"
wait_until 10 leads "$(standby_of "$old")"
start_one "$old"
works two
[ -d "${mount[a]}/one" ] || fail "a directory was lost"

echo "== etcd forgets all tokens: new ones are fetched, nothing is lost"
before=$(logins "$leader")
stop_etcd() { kill -TERM "${pid[etcd]}"; wait "${pid[etcd]}" || :; unset "pid[etcd]"; }
stop_etcd
start_etcd ca
works three
metric_at_least "${admin[$leader]}" kvpool_etcd_logins_total $((before + 1))

echo "== the password is replaced: the file first, which nobody reads without need"
wait_until 10 all_healthy
failed=$(metric "${admin[$leader]}" kvpool_etcd_requests_failed_total)
before=$(logins "$leader")
write_secret "$tmp/password" second
ctl user passwd --interactive=false 'kv pool' <<<second
works four
has_metric "${admin[$leader]}" kvpool_etcd_requests_failed_total "$failed"
metric_at_least "${admin[$leader]}" kvpool_etcd_logins_total $((before + 1))

echo "== all certificates are replaced, by those of another CA"
issue other "$tmp/client" DNS:client
issue other "$tmp/etcd" IP:127.0.0.1
cp "$tmp/other.crt" "$tmp/trusted.crt"
stop_etcd
start_etcd other
works five

echo "== what is wrong is refused, and the log says what"
refused() { # PATTERN OPTION...: exit 2 within 5 s
	local pattern=$1 status=0
	shift
	timeout 20 kvpool-master --foreground --listen 127.0.0.1:0 \
		--admin 127.0.0.1:0 --cluster it "$@" >"$tmp/refused" 2>&1 || status=$?
	[ $status = 2 ] || fail "status $status: $(cat "$tmp/refused")"
	grep -qE -- "$pattern" "$tmp/refused" ||
		fail "no $pattern: $(cat "$tmp/refused")"
	sed 's/^/   /' "$tmp/refused"
}
ca=(--etcd-ca "$tmp/other.crt")
cert=(--etcd-cert "$tmp/client.crt" --etcd-key "$tmp/client.key")
user=(--etcd-user "kv pool" --etcd-password-file "$tmp/password")
issue ca "$tmp/stranger" DNS:stranger
issue other "$tmp/named" DNS:named /CN=named
refused 'certificate is not accepted: .*; --etcd-ca must be the CA' \
	--etcd "$url" --etcd-ca "$tmp/ca.crt" "${cert[@]}" "${user[@]}"
refused '--etcd-ca \(not given\) must be the CA' \
	--etcd "$url" "${cert[@]}" "${user[@]}"
refused 'certificate is not for this host: .*localhost' \
	--etcd "https://localhost:$etcd_port" "${ca[@]}" "${cert[@]}" "${user[@]}"
refused 'does not accept us without --etcd-cert and --etcd-key' \
	--etcd "$url" "${ca[@]}" "${user[@]}"
refused 'does not accept our certificate: .*--trusted-ca-file' \
	--etcd "$url" "${ca[@]}" --etcd-cert "$tmp/stranger.crt" \
	--etcd-key "$tmp/stranger.key" "${user[@]}"
refused 'HTTP 400.*without a common name' \
	--etcd "$url" "${ca[@]}" --etcd-cert "$tmp/named.crt" \
	--etcd-key "$tmp/named.key" "${user[@]}"
refused 'it requires --etcd-user and --etcd-password-file' \
	--etcd "$url" "${ca[@]}" "${cert[@]}"
write_secret "$tmp/wrong" wrong
refused 'invalid user ID or password.*correct --etcd-user' \
	--etcd "$url" "${ca[@]}" "${cert[@]}" \
	--etcd-user "kv pool" --etcd-password-file "$tmp/wrong"
write_secret "$tmp/nobody" first
refused 'permission denied.*grant-permission' \
	--etcd "$url" "${ca[@]}" "${cert[@]}" \
	--etcd-user nobody --etcd-password-file "$tmp/nobody"
refused 'it requires https://.*correct --etcd' --etcd "http://127.0.0.1:$etcd_port"
free_port; plain_port=$port
launch plain etcd --data-dir "$tmp/plain.data" --log-level error \
	--listen-client-urls "http://127.0.0.1:$plain_port" \
	--advertise-client-urls "http://127.0.0.1:$plain_port" \
	--listen-peer-urls http://127.0.0.1:0
wait_until 20 curl -sf --noproxy '*' "http://127.0.0.1:$plain_port/health" >/dev/null
refused 'perhaps it requires http://' --etcd "https://127.0.0.1:$plain_port" "${ca[@]}"
kill9 plain

echo "== as are wrong options and files"
refused '--etcd-key: "k" given; accepted: with --etcd https://' \
	--etcd http://127.0.0.1:1 --etcd-key k
refused '--etcd-cert: .*; accepted: together with --etcd-key' \
	--etcd "$url" --etcd-cert "$tmp/client.crt"
refused '--etcd-password-file: .*; accepted: together with --etcd-user' \
	--etcd "$url" --etcd-password-file "$tmp/password"
refused '--etcd-user: "u" given; accepted: with --etcd https://' \
	--etcd http://127.0.0.1:1,http://10.0.0.1:1 --etcd-user u \
	--etcd-password-file "$tmp/password"
refused '--etcd-ca: .*; accepted: together with --etcd' --etcd-ca "$tmp/ca.crt"
refused '--etcd: .*accepted: .*all http or all https' \
	--etcd "http://127.0.0.1:1,$url"
refused '--etcd-ca: /nonexistent: cannot be opened' --etcd "$url" --etcd-ca /nonexistent
refused '--etcd-ca: .*/password: .*no certificate' --etcd "$url" --etcd-ca "$tmp/password"
refused 'stranger.key: is not the key of .*client.crt' --etcd "$url" \
	--etcd-cert "$tmp/client.crt" --etcd-key "$tmp/stranger.key"
chmod 640 "$tmp/stranger.key" "$tmp/wrong"
refused '--etcd-key: .*stranger.key: its mode is 0640; .*chmod 600 ' --etcd "$url" \
	--etcd-cert "$tmp/stranger.crt" --etcd-key "$tmp/stranger.key"
refused '--etcd-password-file: .*wrong: its mode is 0640; .*chmod 600 ' \
	--etcd "$url" --etcd-user u --etcd-password-file "$tmp/wrong"

echo "== a running master says so, too, and comes back"
m=$(standby_of "$leader")
# etcd writes logins to its log, and has those again after a restart that no
# change follows: one must, or the standby's token stays valid.
works six
mkdir "${mount[a]}/seven"
sync "${mount[a]}"
chmod 644 "$tmp/password"
stop_etcd
start_etcd other
says() { grep -q -- "$1" "$(log_of "$m")"; }
wait_until 10 says '--etcd-password-file: .*its mode is 0644'
chmod 600 "$tmp/password"
works eight

stop a
for m in "${masters[@]}"; do stop "$m"; done
kill9 etcd
pass
