package main

import "errors"

// childArg makes this program one of its own helpers.
const childArg = "-child"

func child(args []string) error { return errors.New("no child yet") }
