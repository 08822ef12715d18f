package sshgate

import (
	"regexp"
	"strings"

	"holt"
)

// defaultUser is the Linux user that is meant when none is named.
const defaultUser = "agent"

var linuxUser = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$`)

// parseName reads the user name of a client: COMPUTER or COMPUTER+LINUXUSER.
func parseName(name string) (computer, user string, err error) {
	computer, user, named := strings.Cut(name, "+")
	if !named {
		user = defaultUser
	}
	if _, err := holt.ParseComputerID(computer); err != nil {
		if computer, err = holt.ParseName(computer); err != nil {
			return "", "", err
		}
	}
	user, err = parseUser(user)
	return computer, user, err
}

// parseUser checks the name, or number, of a Linux user.
func parseUser(user string) (string, error) {
	if !linuxUser.MatchString(user) {
		return "", holt.Errorf(holt.InvalidArgument, "%q is no user of a computer", holt.Clip(user, 40)).WithHint("as einstein+root@host, or einstein@host for agent")
	}
	return user, nil
}
