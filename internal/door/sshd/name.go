package sshd

import (
	"regexp"
	"strings"

	"holt"
)

// defaultUser is the Linux user if the user name has none.
const defaultUser = "agent"

var linuxUser = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$`)

// login is a parsed user name.
type login struct {
	computer string // name or id
	tenant   string // of the computer; "": not given
	user     string // Linux user
}

// parseName parses the user name of a client: COMPUTER or COMPUTER.TENANT, and either with +LINUXUSER.
func parseName(name string) (at login, err error) {
	ref, user, named := strings.Cut(name, "+")
	if !named {
		user = defaultUser
	}
	ref, tenant, confined := strings.Cut(ref, ".")
	if confined {
		if tenant, err = holt.ParseName(tenant); err != nil {
			return login{}, err
		}
	}
	if _, bad := holt.ParseComputerID(ref); bad != nil {
		if ref, err = holt.ParseName(ref); err != nil {
			return login{}, err
		}
	}
	user, err = parseUser(user)
	return login{ref, tenant, user}, err
}

// parseUser checks the name or number of a Linux user.
func parseUser(user string) (string, error) {
	if !linuxUser.MatchString(user) {
		return "", holt.Errorf(holt.InvalidArgument, "invalid Linux user %q", holt.Clip(user, 40)).WithHint("use a login such as einstein+root@host, or einstein@host for the user agent")
	}
	return user, nil
}
