package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holt"
)

// flagError says of a flag's value what it should have been.
func flagError(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	var own *holt.Error
	if errors.As(err, &value) {
		name := value.GetFlag().Name
		if errors.As(err, &own) {
			return holt.Errorf(own.Code, "--%s: %s", name, own.Message).WithHint("%s", own.Hint)
		}
		wants := map[string]string{"int": "a whole number", "int64": "a whole number", "duration": "a time with its unit, as 90s or 1h30m", "bool": "true or false"}
		if is := wants[value.GetFlag().Value.Type()]; is != "" {
			return holt.Errorf(holt.InvalidArgument, "--%s cannot be %q: it is %s", name, value.GetValue(), is).WithHint("%s --help shows the flags", cmd.CommandPath())
		}
	}
	return holt.Errorf(holt.InvalidArgument, "%w", err).WithHint("%s --help shows the flags", cmd.CommandPath())
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
