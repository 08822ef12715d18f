package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/hashicorp/yamux"
)

// inventories are told by turns; but for the first two that are asked for, which are the last of these, most have no end.
var inventories = []struct {
	name string
	tell func(h *hostile, st *yamux.Stream)
}{
	{"items without end", func(h *hostile, st *yamux.Stream) { h.items(st, endless, 1024, 0, h.item) }},
	{"items of nothing", func(h *hostile, st *yamux.Stream) { h.items(st, endless, 1024, 0, func(int) any { return struct{}{} }) }},
	{"one by one", func(h *hostile, st *yamux.Stream) { h.items(st, endless, 1, 50*time.Millisecond, h.item) }},
	{"long names", func(h *hostile, st *yamux.Stream) {
		h.items(st, endless, 64, 0, func(n int) any {
			path := fmt.Sprintf("/opt/%d/%s", n, strings.Repeat("n/", 1<<10))
			return map[string]any{"file": map[string]any{"path": path, "kind": "symlink", "target": path, "unread": true}}
		})
	}},
	{"a lie", func(h *hostile, st *yamux.Stream) { lieList((*hostile).item)(h, st, nil) }},
	{"all of each", func(h *hostile, st *yamux.Stream) {
		h.items(st, 100_000, 1024, 0, func(n int) any {
			name := h.letters(8) + fmt.Sprint(n)
			return []any{
				map[string]any{"package": map[string]any{"name": name, "version": "1"}}, map[string]any{"process": map[string]any{"pid": n, "command": name}},
				map[string]any{"port": map[string]any{"protocol": "tcp", "port": n, "process": name}}, map[string]any{"file": map[string]any{"path": "/opt/" + name, "kind": "file"}},
			}[n%4]
		})
	}},
}

// lieInventory is the next of them.
func lieInventory(h *hostile, st *yamux.Stream, _ json.RawMessage) {
	h.mu.Lock()
	// Three of each, from the last on: a comparison asks for two, and is told the same twice sooner or later.
	n := h.tried["inventories"]/3 + len(inventories) - 1
	kind := inventories[n%len(inventories)]
	h.tried["inventories"]++
	h.mu.Unlock()
	h.did("inventories: "+kind.name, 1)
	kind.tell(h, st)
}

const endless = math.MaxInt

// items sends so many, or until nobody takes them, in batches with a pause after each.
func (h *hostile) items(st *yamux.Stream, most, batch int, pause time.Duration, item func(n int) any) {
	if said(st, nil) != nil {
		return
	}
	for n := 0; n < most; n += batch {
		all := make([]any, batch)
		for i := range all {
			all[i] = item(n + i)
		}
		if said(st, all) != nil {
			return
		}
		h.did("items of inventories", batch)
		time.Sleep(pause)
	}
	said(st, []any{})
}
