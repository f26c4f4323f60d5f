# Figures of a node that add up. Sourced after lib.sh.

# Figures that are compared with each other are of one moment: of one page.
at_once= # "": each figure is asked for; else the page that has them
page() { # NODE
	if [ -n "$at_once" ]; then cat "$at_once"; else http "${admin[$1]}/metrics"; fi
}
value() { # NODE NAME
	page "$1" | awk -v n="$2" '$1 == n { print $2; found = 1 } END { exit !found }'
}
M() { # NODE FIGURE: of kvpool_node_FIGURE
	value "$1" "kvpool_node_$2"
}
labelled() { # NODE FIGURE: the sum of all its labels
	page "$1" | awk -v f="kvpool_node_$2{" '
		index($1, f) == 1 { sum += $2; n++ } END { print n ? sum : "none" }'
}

opens() { # NODE RESULT
	value "$1" "kvpool_fuse_opens_total{result=\"$2\"}"
}

equal() { # WHAT A B
	[ "$2" = "$3" ] || fail "$1: $2, not $3"
	echo "   $1: $2"
}

opens_add_up() { # NODE: which mounts
	equal "$1: opens, as many as the kernel asked for" \
		$(($(opens "$1" local) + $(opens "$1" remote) + \
			$(opens "$1" failed) + $(opens "$1" interrupted) + \
			$(opens "$1" stale))) \
		"$(value "$1" 'kvpool_fuse_requests_total{op="open"}')"
}

adds_up() { # NODE: what holds at any time
	page "$1" >"$tmp/page"
	at_once=$tmp/page
	equal "$1: fetches, by source" "$(labelled "$1" fetches_by_source_total)" \
		"$(M "$1" fetches_total)"
	equal "$1: fetches, by the times they took" "$(labelled "$1" get_seconds_count)" \
		"$(M "$1" fetches_total)"
	acked=$(M "$1" publish_seconds_count)
	published=$(M "$1" published_total)
	[ "$published" -le "$acked" ] &&
		[ "$acked" -le $((published + $(M "$1" same_content_total))) ] ||
		fail "$1: $published published, $acked acks timed"
	echo "   $1: acks of files, by the times they took: $acked"
	equal "$1: copies, here and ended" "$(M "$1" copies_total)" \
		$(($(labelled "$1" copies_ended_total) + $(M "$1" objects) + \
			$(M "$1" cached_objects)))
	equal "$1: fetches that began at a look-up" \
		"$(M "$1" prefetch_started_total)" \
		$(($(M "$1" prefetch_useful_total) + $(M "$1" prefetch_wasted_total) + \
			$(M "$1" prefetch_dropped_total) + $(M "$1" prefetch_unread_objects)))
	[ -z "${mount[$1]:-}" ] || opens_add_up "$1"
	equal "$1: evictions, by cause" \
		$(($(M "$1" evicted_cached_total) + $(M "$1" evicted_granted_total) + \
			$(M "$1" evicted_alone_total) + $(M "$1" evicted_recalled_total))) \
		"$(M "$1" 'copies_ended_total{cause="evicted"}')"
	[ "$(M "$1" evicted_unread_total)" -le \
		"$(M "$1" 'copies_ended_total{cause="evicted"}')" ] ||
		fail "$1: more evicted unread than evicted"
	at_once=
}

at_rest() { # NODE: the master has received all changes
	[ "$(M "$1" pending_changes)" = 0 ] && [ "$(M "$1" unpublished_files)" = 0 ]
}
