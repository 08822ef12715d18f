# What pip install --user and the like put into the workspace can be run.
case ":$PATH:" in
*":$HOME/.local/bin:"*) ;;
*) PATH="$HOME/.local/bin:$PATH" ;;
esac
export PATH
# Set for every session, also one that did not come through PAM. The lines are no shell's:
# what is right of = is the value, as it stands or in quotes.
if [ -r /etc/environment ]; then
	while read -r _holt_line || [ -n "$_holt_line" ]; do
		_holt_line=${_holt_line#export }
		_holt_name=${_holt_line%%=*}
		case $_holt_name in
		"$_holt_line" | "" | [0-9]* | *[!A-Za-z0-9_]*) continue ;;
		esac
		_holt_line=${_holt_line#*=}
		case $_holt_line in
		\"*\" | \'*\') _holt_line=${_holt_line#?} _holt_line=${_holt_line%?} ;;
		esac
		export "$_holt_name=$_holt_line"
	done </etc/environment
	unset _holt_line _holt_name
fi
