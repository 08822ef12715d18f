package holt

import (
	_ "github.com/coder/websocket"
	_ "github.com/creack/pty"
	_ "github.com/danielgtaylor/huma/v2"
	_ "github.com/danielgtaylor/huma/v2/adapters/humago"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/hanwen/go-fuse/v2/fuse"
	_ "github.com/hashicorp/yamux"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/spf13/cobra"
	_ "github.com/vbauerster/mpb/v8"
	_ "github.com/vishvananda/netlink"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "zombiezen.com/go/sqlite"
	_ "zombiezen.com/go/sqlite/sqlitex"
	_ "zombiezen.com/go/sqlite/sqlitemigration"
)
