# ~/.profile: commands for login shells. bash ignores it where ~/.bash_profile or
# ~/.bash_login exists.

for _dir in "$HOME/.local/bin" "$HOME/bin"; do
	case ":$PATH:" in
	*":$_dir:"*) ;;
	*) [ ! -d "$_dir" ] || PATH="$_dir:$PATH" ;;
	esac
done
unset _dir

if [ -n "$BASH_VERSION" ] && [ -f "$HOME/.bashrc" ]; then
	. "$HOME/.bashrc"
fi
