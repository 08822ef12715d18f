# What pip install --user and the like put into the workspace can be run.
case ":$PATH:" in
*":$HOME/.local/bin:"*) ;;
*) PATH="$HOME/.local/bin:$PATH" ;;
esac
export PATH
# Set for every session, also one that did not come through PAM.
if [ -r /etc/environment ]; then
	set -a
	. /etc/environment
	set +a
fi
