package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"holt"
)

// severalHelp is what the help says of a command that takes several names.
const severalHelp = `

With several names, each is processed in order, also after a failure. The exit status is that of the
failures, or 1 if they differ. With --json the results are a list; a failed one has its name and error.`

// failedOne is what JSON says of a name with which a command failed.
type failedOne struct {
	Name  string      `json:"name"`
	Error *holt.Error `json:"error"`
}

// severally makes a command that takes one name, behind lead other arguments, take several of them. Of one
// it does what it did.
func (a *app) severally(cmd *cobra.Command, lead int) *cobra.Command {
	one := cmd.RunE
	most := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > lead+1 {
			return most(cmd, args[:lead+1])
		}
		return most(cmd, args)
	}
	if cmd.Long == "" {
		cmd.Long = cmd.Short + "."
	}
	cmd.Long += severalHelp
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) <= lead+1 {
			return one(cmd, args)
		}
		return a.each(args[lead:], func(name string) error {
			return one(cmd, append(append([]string{}, args[:lead]...), name))
		})
	}
	return cmd
}

// each does something with every name, whatever becomes of the others, and prints all answers.
func (a *app) each(names []string, act func(name string) error) error {
	var failed []error
	answers := []json.RawMessage{}
	out, asJSON := a.Out, a.wantsJSON()
	defer func() { a.Out = out }()
	for _, name := range names {
		var answer bytes.Buffer
		if asJSON {
			a.Out = &answer
		}
		err := act(name)
		if errors.Is(err, context.Canceled) { // Ctrl-C is meant for all of them
			return err
		}
		if err != nil {
			failed = append(failed, err)
			a.failedAt(name, err)
			answer.Reset()
			if err := json.NewEncoder(&answer).Encode(failedOne{name, holt.AsError(err)}); err != nil {
				return err
			}
		}
		if asJSON {
			answers = append(answers, bytes.TrimSpace(answer.Bytes()))
		}
	}
	if asJSON {
		if err := printJSON(out, answers); err != nil {
			return err
		}
	}
	return ofSeveral(failed, len(names))
}

// failedAt says what failed, and with which name.
func (a *app) failedAt(name string, err error) {
	var status exitStatus
	if errors.As(err, &status) {
		return // it was said
	}
	e := *holt.AsError(err)
	e.Message = name + ": " + e.Message
	a.complain(&e)
}

// ofSeveral is the exit of a command of which these failed.
func ofSeveral(failed []error, of int) error {
	if len(failed) == 0 {
		return nil
	}
	var status int
	for i, err := range failed {
		is := exitOf(holt.CodeOf(err))
		var own exitStatus
		if errors.As(err, &own) {
			is = int(own)
		}
		if i > 0 && is != status {
			status = exitFailure
			break
		}
		status = is
	}
	return severalFailed{exitStatus(status), fmt.Sprintf("%d of %d failed", len(failed), of)}
}

// severalFailed ends the program; all was said.
type severalFailed struct {
	exitStatus
	text string
}

func (f severalFailed) Error() string { return f.text }
func (f severalFailed) Unwrap() error { return f.exitStatus }
