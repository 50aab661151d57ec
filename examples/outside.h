/* Runs shell commands while mounts hang.
 *
 * A program that has files open on a mount that does not answer cannot start another one: the new
 * process closes its copies of them when it executes, which asks the mount, and whoever started it
 * waits with it. So a child is made before any store is opened, and runs what is wanted later. */
#ifndef EXAMPLES_OUTSIDE_H
#define EXAMPLES_OUTSIDE_H

enum { OUTSIDE_BYTES = 512 };

/* Makes the child. -1 with errno where that fails. It ends with this process. */
int outside_start(void);

/* Runs a command of less than OUTSIDE_BYTES there, and gives what system() gave; -1: there is no
 * child. One thread at a time. */
int outside_run(const char *command);

#endif
