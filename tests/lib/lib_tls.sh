# A pool with TLS, for tests. Sourced after lib.sh.

# A CA of the pool "test": DIR/ca.crt and ca.key.
ca_make() { # DIR
	kvpool certs init --dir "$1" --cluster test >/dev/null
}

# From here on, daemons started by lib.sh have the certificates in
# $KVTEST_TLS/{master,node}, its requests use that of admin, and programs with
# libkvpool that of client. They are valid for two days.
use_tls() { # sets $KVTEST_TLS
	local role
	KVTEST_TLS=$tmp/tls
	mkdir "$KVTEST_TLS"
	ca_make "$KVTEST_TLS/ca"
	for role in master node client admin; do
		cert_issue "$KVTEST_TLS/ca" $role "$KVTEST_TLS/$role"
	done
	export KVTEST_TLS KVPOOL_TLS_DIR=$KVTEST_TLS/client
}

cert_issue() { # CA-DIR ROLE OUT
	kvpool certs issue --dir "$1" --role "$2" --days 2 --out "$3" \
		--host 127.0.0.1,localhost >/dev/null
}

cert_renew() { # CA-DIR OUT DAYS
	kvpool certs renew --dir "$1" --out "$2" --days "$3" >/dev/null
}

# As cert_issue, for kvpool://URI, but with the openssl command, as users may do
# instead of `kvpool certs`.
cert_by_openssl() { # CA-DIR URI OUT [SUBJECT]
	local ca=$1 uri=$2 out=$3
	mkdir -p "$out"
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
		-subj "${4:-/CN=$(basename "$out")}" -keyout "$out/tls.key" \
		-out "$out/csr" 2>/dev/null
	openssl x509 -req -in "$out/csr" -CA "$ca/ca.crt" -CAkey "$ca/ca.key" \
		-days 2 -out "$out/tls.crt" -extfile <(
			echo "basicConstraints=critical,CA:FALSE"
			echo "extendedKeyUsage=serverAuth,clientAuth"
			echo "subjectAltName=URI:kvpool://$uri,IP:127.0.0.1,DNS:localhost"
		) 2>/dev/null
	chmod 0600 "$out/tls.key"
	cp "$ca/ca.crt" "$out/ca.crt"
}

# ---- listening sockets ----
#
# $who: whose they are, for messages. $tmp/foreign and $tmp/cluster: as make_foreign
# made them. $has_faults: the one that has --allow-faults.

# Certificates that are as good as ours, but of another CA or cluster.
make_foreign() {
	local role
	ca_make "$tmp/foreign"
	for role in node admin; do
		cert_issue "$tmp/foreign" $role "$tmp/foreign/$role"
		cert_by_openssl "$KVTEST_TLS/ca" other/$role "$tmp/cluster/$role"
	done
}


# Connects as a client that accepts any server. $kept: was the connection open $patience
# seconds later (1); $tmp/got: what came by TLS.
shake() { # HOST:PORT DIR-OR-"" [OPTION of s_client...]
	local at=$1 dir=$2 cert=() status=0
	shift 2
	[ -z "$dir" ] || cert=(-cert "$dir/tls.crt" -key "$dir/tls.key")
	# With its input open, s_client ends when the server closes.
	timeout "${patience:-1}" openssl s_client -connect "$at" -quiet "${cert[@]}" "$@" \
		< <(sleep $((${patience:-1} + 1))) >"$tmp/got" 2>"$tmp/stderr" || status=$?
	kept=no
	[ $status != 124 ] || kept=yes
}

is_refused() { # WHY-IT-SHOULD-BE HOST:PORT DIR [OPTION...]
	local why=$1
	shift
	shake "$@"
	# On a busy machine a refusal may take longer than that.
	[ $kept = no ] || patience=20 shake "$@"
	[ $kept = no ] || fail "$1 of $who accepts $why"
	[ ! -s "$tmp/got" ] || fail "$1 of $who answers $why: $(head -c 200 "$tmp/got")"
}

# Bytes as they come, without TLS: nothing but an alert of TLS is answered.
is_silent() { # HOST:PORT TEXT
	local first
	exec {plain}<>"/dev/tcp/${1%:*}/${1##*:}"
	printf '%b' "$2" >&"$plain" || :
	timeout 1 cat <&"$plain" >"$tmp/got" 2>/dev/null || :
	exec {plain}>&-
	first=$(head -c 1 "$tmp/got" | od -An -tx1 | tr -d ' \n')
	[ -z "$first" ] || [ "$first" = 15 ] ||
		fail "$1 of $who answers plain text: $(head -c 200 "$tmp/got")"
}

check_common() { # HOST:PORT ROLE-THAT-FITS
	local version
	is_silent "$1" ''
	is_silent "$1" 'GET /healthz HTTP/1.0\r\n\r\n'
	is_silent "$1" 'KVPL\0\0\0\1\0\0\0\0'
	is_refused "a client without a certificate" "$1" ""
	is_refused "the certificate of another CA" "$1" "$tmp/foreign/$2"
	is_refused "the certificate of another cluster" "$1" "$tmp/cluster/$2"
	# By the server: an old version is offered, and its alert is about that.
	for version in tls1 tls1_1 tls1_2; do
		is_refused $version "$1" "$KVTEST_TLS/$2" -$version \
			-cipher DEFAULT:@SECLEVEL=0
		grep -q 'alert protocol version' "$tmp/stderr" ||
			fail "$1 of $who does not refuse $version: $(cat "$tmp/stderr")"
	done
	rm -f "$tmp/session"
	shake "$1" "$KVTEST_TLS/$2" -tls1_3 -sess_out "$tmp/session"
	[ $kept = yes ] || fail "$1 of $who refuses a $2: $(cat "$tmp/stderr")"
	[ ! -e "$tmp/session" ] || fail "$1 of $who gives tickets: no certificate is asked again"
}

check_pool_port() { # HOST:PORT
	local role
	check_common "$1" node
	shake "$1" "$KVTEST_TLS/client"
	[ $kept = yes ] || fail "$1 of $who refuses a client: $(cat "$tmp/stderr")"
	for role in admin master; do
		is_refused "the role $role" "$1" "$KVTEST_TLS/$role"
	done
}

status_of() { # ROLE HOST:PORT/PAGE [OPTION of curl...]: the HTTP status
	local dir=$KVTEST_TLS/$1 url=https://$2
	shift 2
	curl -s -o "$tmp/body" -w '%{http_code}' --noproxy '*' --max-time 5 \
		--cacert "$dir/ca.crt" --cert "$dir/tls.crt" --key "$dir/tls.key" \
		"$@" "$url" || :
}

check_admin_port() { # HOST:PORT
	local role want status names=200
	check_common "$1" admin
	[ "$(status_of admin "$1/readyz")" = 200 ] || names=503 # a standby
	for role in master node client admin; do
		[ "$(status_of $role "$1/metrics")" = 200 ] ||
			fail "$1 of $who gives a $role no metrics"
		[ "$(status_of $role "$1/api/objects")" = "$names" ] ||
			fail "$1 of $who gives a $role no names"
		[ $role != admin ] || continue
		[ "$(status_of $role "$1/api/faults?clear=yes" -d '')" = 403 ] ||
			fail "a $role may change $who"
		[ "$(status_of $role "$1/api/faults")" = 403 ] ||
			fail "a $role sees the faults of $who"
	done
	# Without --allow-faults there is no such page, for an admin either.
	want=404
	[ "$who" != "${has_faults:-}" ] || want=200
	status=$(status_of admin "$1/api/faults")$(status_of admin "$1/api/faults?clear=yes" -d '')
	[ "$status" = $want$want ] ||
		fail "faults of $who for an admin: $status $(cat "$tmp/body")"
}
