package sshd

import (
	"regexp"
	"strings"

	"holt"
)

// defaultUser is the Linux user that is meant when none is named.
const defaultUser = "agent"

var linuxUser = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$`)

// login is what a client's user name says.
type login struct {
	computer string // name or id
	tenant   string // whose computer that is; "": it is not said
	user     string // Linux user
}

// parseName reads the user name of a client: COMPUTER, COMPUTER.TENANT, and either with +LINUXUSER.
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

// parseUser checks the name, or number, of a Linux user.
func parseUser(user string) (string, error) {
	if !linuxUser.MatchString(user) {
		return "", holt.Errorf(holt.InvalidArgument, "%q is no user of a computer", holt.Clip(user, 40)).WithHint("as einstein+root@host, or einstein@host for agent")
	}
	return user, nil
}
