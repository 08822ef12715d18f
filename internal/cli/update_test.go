package cli

import "flag"

var rewrite = flag.Bool("update", false, "rewrite golden files")

// Rewrite is the flag, for the tests from outside.
var Rewrite = rewrite
