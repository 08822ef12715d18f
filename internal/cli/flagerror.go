package cli

import (
	"cmp"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holt"
)

// flagError names the flag whose value is invalid, and says what it should be.
func flagError(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		e := invalidValue(value.GetFlag(), value.GetValue(), errors.Unwrap(value))
		return holt.Errorf(e.Code, "--%s: %s", value.GetFlag().Name, e.Message).WithHint("%s", e.Hint)
	}
	return holt.Errorf(holt.InvalidArgument, "%w", err).WithHint("%s --help lists the flags", cmd.CommandPath())
}

// invalidValue is the error of a flag's value.
func invalidValue(flag *pflag.Flag, text string, err error) *holt.Error {
	var own *holt.Error
	if errors.As(err, &own) {
		return own
	}
	wants := map[string]string{"int": "use a whole number", "int64": "use a whole number", "duration": "use a duration with a unit, such as 90s or 1h30m", "bool": "use true or false"}
	return holt.Errorf(holt.InvalidArgument, "invalid value %q", text).WithHint("%s", cmp.Or(wants[flag.Value.Type()], err.Error()))
}

// ofFlags says what the API does not take by the names of the command's flags, as far as it has any of these names.
func ofFlags(cmd *cobra.Command, err error) error {
	var e *holt.Error
	if !errors.As(err, &e) || e.Code != holt.InvalidArgument {
		return err
	}
	problems, _ := e.Detail.([]any) // see server's problem
	var texts []string
	for _, p := range problems {
		fields, _ := p.(map[string]any)
		where, _ := fields["where"].(string)
		message, _ := fields["message"].(string)
		name := strings.ReplaceAll(where[strings.LastIndex(where, ".")+1:], "_", "-")
		if name == "" || message == "" || cmd.Flags().Lookup(name) == nil {
			return err
		}
		texts = append(texts, "--"+name+": "+message)
	}
	if len(texts) == 0 {
		return err
	}
	return holt.Errorf(e.Code, "%s", strings.Join(texts, "; ")).WithHint("%s --help shows the flags", cmd.CommandPath())
}
