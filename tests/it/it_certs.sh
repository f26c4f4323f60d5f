#!/bin/bash
# kvpool certs from init to roll, with openssl as the judge of what it makes: who
# the certificates are for, who may read the keys, what is refused and how, and that
# a roll-over leaves no moment at which a peer is not trusted.
# variants: release asan
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need openssl jq flock
cd "$tmp" || exit 1

# refused STATUS REGEX COMMAND...: it exits with STATUS, and its output matches.
refused() {
	local want=$1 regex=$2 status=0 output
	shift 2
	output=$("$@" 2>&1 </dev/null) || status=$?
	[ $status = "$want" ] || fail "status $status, not $want: $*: $output"
	grep -qE -- "$regex" <<<"$output" || fail "no \"$regex\" from $*: $output"
}
certs() { kvpool certs "$@"; }
issue() { certs issue --dir ca "$@"; }
prints() { # REGEX COMMAND...
	refused 0 "$@"
}
mode_is() { # MODE FILE...
	local f
	for f in "${@:2}"; do
		[ "$(stat -c %a "$f")" = "$1" ] || fail "$f has mode $(stat -c %a "$f"), not $1"
	done
}
trusts() { # CAFILE CERT: by the rules, on both sides of a connection
	openssl verify -x509_strict -purpose sslserver -CAfile "$1" "$2" >/dev/null &&
		openssl verify -x509_strict -purpose sslclient -CAfile "$1" "$2" >/dev/null
}
ext() { # CERT NAME
	openssl x509 -in "$1" -noout -ext "$2" | tail -n +2 | sed 's/^ *//'
}
public() { openssl x509 -in "$1" -noout -pubkey; }
belong() { # DIR
	[ "$(public "$1/tls.crt")" = "$(openssl pkey -in "$1/tls.key" -pubout)" ] ||
		fail "the key in $1 is not that of the certificate"
}
serial() { openssl x509 -in "$1" -noout -serial | sed 's/serial=//'; }
lasts() { # DAYS CERT: to the minute
	openssl x509 -in "$2" -noout -checkend $(($1 * 86400 - 60)) >/dev/null &&
		! openssl x509 -in "$2" -noout -checkend $(($1 * 86400 + 60)) >/dev/null ||
		fail "$2 does not expire in $1 days"
}

echo "== a CA, that nobody else can read and nothing overwrites"
umask 000
prints '^made: the CA of prod' certs init --dir ca --cluster prod
mode_is 700 ca
mode_is 600 ca/ca.key
openssl verify -x509_strict -check_ss_sig -CAfile ca/ca.crt ca/ca.crt >/dev/null ||
	fail "openssl does not accept the CA"
[ "$(ext ca/ca.crt basicConstraints)" = CA:TRUE,\ pathlen:0 ] || fail "basicConstraints"
[ "$(ext ca/ca.crt keyUsage)" = "Certificate Sign, CRL Sign" ] || fail "keyUsage"
grep -q 'NIST CURVE: P-256' < <(openssl x509 -in ca/ca.crt -noout -text) || fail "not P-256"
lasts 3650 ca/ca.crt
before=$(sha256sum ca/*)
refused 1 'ca: there is a CA in it' certs init --dir ca --cluster prod
[ "$(sha256sum ca/*)" = "$before" ] || fail "init has changed a CA"
mkdir full && touch full/x
refused 1 'full: is not an empty' certs init --dir full --cluster prod
mode_is 777 full
refused 1 'no/ca: cannot be made: No such file' certs init --dir no/ca --cluster prod
refused 2 '--cluster: "a/b" given; accepted: 1 to 63' certs init --dir x --cluster a/b
refused 2 '--cluster: no value given' certs init --dir x
refused 2 '--dir: no value given' certs init --cluster x
[ ! -e x ] || fail "a wrong command has made a directory"

echo "== certificates say who they are for"
issue --role node --host gpu1,gpu1.example.org,10.0.0.2,fd00::2 --out gpu1
mode_is 600 gpu1/tls.key
mode_is 644 gpu1/tls.crt gpu1/ca.crt
mode_is 700 gpu1
belong gpu1
trusts gpu1/ca.crt gpu1/tls.crt || fail "openssl does not accept the certificate"
cmp ca/ca.crt gpu1/ca.crt
[ "$(ext gpu1/tls.crt subjectAltName)" = "DNS:gpu1, DNS:gpu1.example.org, IP Address:10.0.0.2, IP Address:FD00:0:0:0:0:0:0:2, URI:kvpool://prod/node" ] ||
	fail "$(ext gpu1/tls.crt subjectAltName)"
[ "$(ext gpu1/tls.crt basicConstraints)" = CA:FALSE ] || fail "basicConstraints"
[ "$(ext gpu1/tls.crt keyUsage)" = "Digital Signature" ] || fail "keyUsage"
[ "$(ext gpu1/tls.crt extendedKeyUsage)" = "TLS Web Server Authentication, TLS Web Client Authentication" ] ||
	fail "extendedKeyUsage"
[ "$(openssl x509 -in gpu1/tls.crt -noout -subject)" = "subject=O = prod, CN = gpu1" ] ||
	fail "subject"
lasts 365 gpu1/tls.crt
# A clock that is a few minutes slow must not refuse it.
begins=$(date -d "$(openssl x509 -in gpu1/tls.crt -noout -startdate | cut -d= -f2)" +%s)
[ $((EPOCHSECONDS - begins)) -ge 300 ] || fail "it begins only now"
issue --role client --namespace /models/llama --namespace 'team a' --name 'engine 1' \
	--days 60 --out engine
[ "$(ext engine/tls.crt subjectAltName)" = "URI:kvpool://prod/client/models/llama, URI:kvpool://prod/client/team%20a" ] ||
	fail "$(ext engine/tls.crt subjectAltName)"
lasts 60 engine/tls.crt
issue --role client --namespace a --namespace b --uid 1000,0 --out users
[ "$(ext users/tls.crt subjectAltName)" = "URI:kvpool://prod/client/a?uid=1000,0, URI:kvpool://prod/client/b?uid=1000,0" ] ||
	fail "$(ext users/tls.crt subjectAltName)"
issue --role master --host m1 --out m1
issue --role admin --out root
[ "$(for d in gpu1 engine users m1 root; do serial $d/tls.crt; done | sort -u | grep -cE '^[0-9A-F]{20,32}$')" = 5 ] ||
	fail "serial numbers are not random"

echo "== wrong options are refused, and leave nothing behind"
refused 2 '--role: "boss" given; accepted: master, node, client or admin' \
	issue --role boss --out x
refused 2 '--host: no value given' issue --role node --out x
refused 2 '--host: no value given' issue --role master --out x
refused 2 '--out: no value given' issue --role admin
refused 2 '--days: "0" given; accepted: a whole number, 1 to 36500' \
	issue --role admin --out x --days 0
for host in '*.example.org' gpu1:7070 '[fd00::2]' 'a b' '' a,,b 10.0.0 10.0.0.256 -a a- a..b .a \
	"$(printf 'a%.0s' {1..64})" fe80::1%eth0 "$(printf 'aaaaaaaaa.%.0s' {1..26})a"; do
	refused 2 '--host: (".*"|no value) given; accepted: ' issue --role node --host "$host" --out x
done
refused 2 '--host: more than 32' issue --role node --out x \
	--host "$(seq -s, -f 'n%.0f' 33)"
for dir in / '' a//b ../b a/.. ./a "$(printf 'a/%.0s' {1..512})a"; do
	refused 2 '--namespace: ".*" given; accepted: ' issue --role client --namespace "$dir" --out x
done
refused 2 '--namespace: .*only with --role client or node' \
	issue --role admin --namespace a --out x
refused 2 '--namespace: "17" given; accepted: .* up to 16 times' \
	issue --role client --out x $(seq -f '--namespace %.0f' 17)
for uid in '' 01 -1 1,,2 4294967295 root "$(seq -s, 17)"; do
	refused 2 '--uid: (".*"|no value) given; accepted: ' issue --role client --uid "$uid" --out x
done
refused 2 '--uid: .*only with --role client or node' issue --role master --host m --uid 1 --out x
refused 2 '--name: .*1 to 64 printable' issue --role admin --out x --name $'a\tb'
refused 2 '--name: .*1 to 64 printable' issue --role admin --out x \
	--name "$(printf 'a%.0s' {1..65})"
refused 2 '"y" given; accepted: options only' issue --role admin --out x y
refused 1 '--out: "ca" given; accepted: another directory' issue --role admin --out ca
refused 1 '--out: there is a certificate in gpu1' issue --role admin --out gpu1
refused 1 '--out: gpu1/tls.crt is not a directory' issue --role admin --out gpu1/tls.crt
refused 1 'no/x: cannot be made' issue --role admin --out no/x
refused 1 '--dir: gpu1 has no ca.crt with its ca.key' certs issue --dir gpu1 --role admin --out x
refused 1 '--dir: nope: No such file' certs list --dir nope
refused 2 'accepted: init, issue, list, renew, roll or check' certs nope
refused 2 '^usage: kvpool certs' certs
chmod 640 ca/ca.key
refused 1 'ca/ca.key: its mode is 0640.*chmod 600 ca/ca.key' issue --role admin --out x
chmod 600 ca/ca.key
[ ! -e x ] || [ -z "$(ls -A x)" ] || fail "x: $(ls -A x)"
[ "$(ls ca/issued | wc -l)" = 5 ] || fail "a certificate was recorded but not issued"

echo "== list"
certs list --dir ca | tee list
[ "$(awk '{ print $1 }' list | head -n2 | tail -n1)" = engine ] ||
	fail "the first to expire is not the first"
grep -qE '^gpu1 +node +gpu1,gpu1.example.org,10.0.0.2,fd00::2 +all +all +20' list || fail "gpu1"
grep -qE '^engine 1 +client +- +models/llama,team%20a +all +20' list || fail "engine 1"
grep -qE '^client +client +- +a,b +1000,0 +20' list || fail "users"
certs list --dir ca --json | jq -e --arg s "$(serial gpu1/tls.crt)" '
	length == 5 and (map(select(.serial == $s)) | length == 1 and
		(.[0] | .role == "node" and .namespaces == [] and .cluster == "prod" and
		.hosts == ["gpu1", "gpu1.example.org", "10.0.0.2", "fd00::2"] and
		(.days_left == 364 or .days_left == 365)))' >/dev/null || fail "JSON"
echo rubbish >ca/issued/00.crt
refused 1 'ca/issued/00.crt: there is no certificate' certs list --dir ca
{ certs list --dir ca 2>/dev/null || :; } | grep '^gpu1 ' >/dev/null ||
	fail "one damaged record hides the others"
rm ca/issued/00.crt

echo "== check"
prints 'gpu1 is good' certs check --tls-dir gpu1
prints 'role +node' certs check --tls-dir gpu1
prints 'gpu1 is good' certs check --tls-dir gpu1 --host 10.0.0.2
prints 'gpu1 is good' env KVPOOL_TLS_DIR=gpu1 kvpool certs check --host gpu1.example.org
refused 1 'not for the host gpu2' certs check --tls-dir gpu1 --host gpu2
refused 2 '--tls-dir: no value given' certs check
bad() { # REGEX: of gpu1, changed, which is then mended
	refused 1 "$1" certs check --tls-dir gpu1
	rm -rf gpu1 && cp -a gpu1.good gpu1
	prints 'gpu1 is good' certs check --tls-dir gpu1
}
cp -a gpu1 gpu1.good
for mode in 640 604 644 660; do
	chmod $mode gpu1/tls.key
	bad "gpu1/tls.key: its mode is 0$mode; accepted: .*chmod 600 gpu1/tls.key.*defaultMode: 0400"
done
chmod 400 gpu1/tls.key
prints 'gpu1 is good' certs check --tls-dir gpu1
for f in ca.crt tls.crt tls.key; do
	rm gpu1/$f
	bad "gpu1/$f: there is no such file"
done
cp m1/tls.key gpu1
bad 'tls.key is not the key of tls.crt'
certs init --dir ca2 --cluster prod
cp ca2/ca.crt gpu1
bad 'tls.crt is not signed by a CA of ca.crt'
certs issue --dir ca2 --role admin --out gpu2
self_made() { # DAYS SANS: of the CA, by openssl
	openssl req -new -key gpu1/tls.key -subj /CN=x -out x.csr
	openssl x509 -req -in x.csr -CA ca/ca.crt -CAkey ca/ca.key -CAcreateserial \
		-CAserial x.srl -days "$1" -out gpu1/tls.crt \
		-extfile <(echo "subjectAltName=$2") 2>/dev/null
}
self_made -1 URI:kvpool://prod/node
bad 'the certificate has expired on 20.*kvpool certs renew'
self_made 9 URI:kvpool://prod/node
prints 'expires in [89] days; renew it' certs check --tls-dir gpu1
self_made 9 DNS:gpu1
bad 'gpu1/tls.crt: the certificate has no URI kvpool://CLUSTER/ROLE'
self_made 9 URI:kvpool://prod/node,URI:kvpool://prod/admin
bad 'gpu1/tls.crt: the certificate has URIs kvpool://... of two roles'

echo "== renew: another key, the same identity"
chown 12345:23456 engine/tls.*
cp -a engine engine.before
prints '^renewed: engine 1, client of prod' certs renew --dir ca --out engine --days 90
belong engine
trusts ca/ca.crt engine/tls.crt || fail "openssl does not accept what was renewed"
mode_is 600 engine/tls.key
[ "$(stat -c %u:%g engine/tls.key)" = 12345:23456 ] || fail "the key has another owner now"
cmp -s engine/tls.key engine.before/tls.key && fail "the key is the same"
for what in subject 'ext subjectAltName'; do
	[ "$(openssl x509 -in engine/tls.crt -noout -$what)" = \
		"$(openssl x509 -in engine.before/tls.crt -noout -$what)" ] || fail "another $what"
done
[ "$(serial engine/tls.crt)" != "$(serial engine.before/tls.crt)" ] || fail "the same serial"
lasts 90 engine/tls.crt
[ "$(certs list --dir ca | grep -c '^engine')" = 1 ] || fail "what was renewed is listed"
[ "$(ls -A engine | wc -l)" = 3 ] || fail "$(ls -A engine)"
# What ended between the two renames: the certificate is lost, but not its record.
lost=$(serial engine/tls.crt)
cp engine.before/tls.crt engine
refused 1 'is not the key of' certs check --tls-dir engine
certs renew --dir ca --out engine
prints 'engine is good' certs check --tls-dir engine
refused 1 'gpu2/tls.crt: is not signed by the CA in ca' certs renew --dir ca --out gpu2
refused 1 'gpu2/tls.crt: is not signed by the CA in ca' certs renew --dir ca --ca-only --out gpu2
refused 1 'nope/tls.crt: there is no such file' certs renew --dir ca --out nope
refused 2 '--days: "3" given; accepted: without --ca-only' \
	certs renew --dir ca --ca-only --days 3 --out engine

echo "== roll: nobody is distrusted at any step"
all="gpu1 engine users m1 root"
everyone_trusts_everyone() { # STEP
	local a b
	for a in $all; do
		for b in $all; do
			trusts "$a/ca.crt" "$b/tls.crt" || fail "$1: $a does not trust $b"
		done
	done
}
refused 1 'no roll-over has begun' certs roll --dir ca --switch
refused 1 'there is no old CA; no roll-over has begun' certs roll --dir ca --finish
first=$(openssl x509 -in ca/ca.crt -noout -fingerprint)
prints 'the present one still signs' certs roll --dir ca
mode_is 600 ca/ca.next.key
refused 1 'a roll-over has begun already' certs roll --dir ca
refused 1 '--switch comes first' certs roll --dir ca --finish
for d in $all; do
	everyone_trusts_everyone "the next CA is made known, before $d"
	prints 'trusts 2 CAs now' certs renew --dir ca --ca-only --out $d
	belong $d
done
# One that is new while not all know the next CA.
issue --role node --host gpu3 --out gpu3
all="$all gpu3"
everyone_trusts_everyone "a new node"
prints 'The next CA signs' certs roll --dir ca --switch
[ "$(openssl x509 -in ca/ca.crt -noout -fingerprint)" != "$first" ] || fail "nothing was switched"
prints 'The next CA signs' certs roll --dir ca --switch
for d in $all; do
	refused 1 'node gpu3: its certificate .* is of the old CA' certs roll --dir ca --finish
	everyone_trusts_everyone "certificates of the next CA, before $d"
	certs renew --dir ca --out $d
done
everyone_trusts_everyone "all are of the next CA"
refused 1 "client engine 1: its certificate issued/$lost.crt is of the old CA" \
	certs roll --dir ca --finish
rm "ca/issued/$lost.crt"
refused 1 'is not finished' certs roll --dir ca
prints 'The old CA is removed' certs roll --dir ca --finish
[ "$(ls ca | tr '\n' ' ')" = "ca.crt ca.key issued renewed " ] || fail "$(ls ca)"
for d in $all; do
	everyone_trusts_everyone "the old CA is forgotten, before $d"
	prints 'trusts 1 CA now' certs renew --dir ca --ca-only --out $d
	prints "$d is good" certs check --tls-dir $d
done
everyone_trusts_everyone "the end"
trusts gpu1/ca.crt engine.before/tls.crt 2>/dev/null && fail "the old CA is still trusted"
refused 1 'engine.before/tls.crt: is not signed by the CA in ca' \
	certs renew --dir ca --out engine.before

echo "== a switch that was interrupted is completed"
certs roll --dir ca
cp -a ca ca.begun
for steps in 1 2 3; do
	rm -rf ca && cp -a ca.begun ca
	next=$(openssl x509 -in ca/ca.next.crt -noout -fingerprint)
	mv ca/ca.crt ca/ca.old.crt
	[ $steps -lt 2 ] || mv ca/ca.key ca/ca.old.key
	[ $steps -lt 3 ] || mv ca/ca.next.key ca/ca.key
	certs list --dir ca >/dev/null
	[ "$(openssl x509 -in ca/ca.crt -noout -fingerprint)" = "$next" ] || fail "after $steps steps"
	certs renew --dir ca --out gpu1
	trusts gpu1/ca.crt gpu1/tls.crt || fail "openssl, after $steps steps"
	prints 'The next CA signs' certs roll --dir ca --switch
done
refused 2 '--force: "yes" given; accepted: with --finish' certs roll --dir ca --force
certs roll --dir ca --finish --force

echo "== no certificate outlives its CA; an expired CA signs nothing"
certs init --dir short --cluster prod --days 5
prints 'expires with its CA, in [45] days' certs issue --dir short --role admin --out s1
lasts 5 s1/tls.crt
openssl x509 -in short/ca.crt -signkey short/ca.key -days -1 -out short/new 2>/dev/null
mv short/new short/ca.crt
refused 1 'the CA in short has expired; make another: kvpool certs roll' \
	certs issue --dir short --role admin --out s2

echo "== at the same time"
certs init --dir many --cluster prod
jobs_=()
for i in 1 2 3 4 5 6 7 8; do
	certs issue --dir many --role node --host "n$i" --out "many.$i" &
	jobs_+=($!)
done
for j in "${jobs_[@]}"; do wait "$j" || fail "one of several failed"; done
[ "$(certs list --dir many --json | jq length)" = 8 ] || fail "not all are recorded"
status=0
flock many timeout 1 kvpool certs list --dir many >/dev/null || status=$?
[ $status = 124 ] || fail "the CA is not locked while it is used: $status"
[ -z "$(find . -name '.*.??????')" ] || fail "$(find . -name '.*.??????')"
pass
