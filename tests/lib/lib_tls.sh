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
cert_by_openssl() { # CA-DIR URI OUT
	local ca=$1 uri=$2 out=$3
	mkdir -p "$out"
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
		-subj "/CN=$(basename "$out")" -keyout "$out/tls.key" \
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
