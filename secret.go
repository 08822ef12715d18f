package holt

import (
	"cmp"
	"slices"
	"strings"
)

// Masked replaces secrets.
const Masked = "***"

// MinSecret is the length of the shortest value that is masked, in bytes. Masking
// shorter values would damage unrelated text.
const MinSecret = 4

// OnRecord returns the specification of a run that is stored and shown: without
// environment and secrets, and with [Masked] in place of secrets and of variables
// with secret names ([SecretName]) in the command and its arguments.
func (s RunSpec) OnRecord() RunSpec {
	values := s.Secrets.Values()
	for name, value := range s.Env {
		if SecretName(string(name)) && len(value) >= MinSecret {
			values = append(values, string(value))
		}
	}
	s.Env, s.Secrets = nil, nil
	if len(values) == 0 {
		return s
	}
	longestFirst(values)
	pairs := make([]string, 0, 2*len(values))
	for _, value := range values {
		pairs = append(pairs, value, Masked)
	}
	mask := strings.NewReplacer(pairs...)
	s.Command = OSString(mask.Replace(string(s.Command)))
	s.Argv = slices.Clone(s.Argv)
	for i, arg := range s.Argv {
		s.Argv[i] = mask.Replace(arg)
	}
	return s
}

// Secrets are variables of a run's environment whose values are masked.
type Secrets map[OSString]OSString

// Values returns what to mask, the longest first: each value without final line
// breaks, and each line of a value with several lines, such as a key.
func (s Secrets) Values() []string {
	var values []string
	for _, value := range s {
		whole := strings.TrimRight(string(value), "\r\n")
		values = append(values, whole)
		if strings.Contains(whole, "\n") {
			values = append(values, strings.FieldsFunc(whole, func(r rune) bool { return r == '\n' || r == '\r' })...)
		}
	}
	values = slices.DeleteFunc(values, func(v string) bool { return len(v) < MinSecret })
	longestFirst(values)
	return slices.Compact(values)
}

func longestFirst(values []string) {
	slices.SortFunc(values, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
}

// SecretName reports whether the name of a variable looks like that of a secret,
// such as GITHUB_TOKEN or AWS_SECRET_ACCESS_KEY.
func SecretName(name string) bool {
	words := strings.Split(strings.ToUpper(name), "_")
	last := words[len(words)-1]
	switch last {
	case "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "APIKEY", "PGPASSWORD", "PASS", "PWD", "PAT":
		return last != "PWD" || len(words) > 1 // a shell's working directory
	case "KEY":
		return len(words) > 1 && slices.Contains([]string{"API", "ACCESS", "PRIVATE", "SECRET", "SIGNING", "ENCRYPTION", "DEPLOY"}, words[len(words)-2])
	}
	return slices.Contains(words, "SECRET")
}
