package main

import (
	"embed"

	"holt"
)

//go:embed guest
var guestDir embed.FS

// guestBinary returns the guest agent that this holt was built with.
func guestBinary() ([]byte, error) {
	data, err := guestDir.ReadFile("guest/holt-guest")
	if err != nil {
		return nil, holt.Errorf(holt.Unsupported, "this holt was built without a guest agent").WithHint("build it with make build")
	}
	return data, nil
}
