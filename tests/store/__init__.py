"""The event stores on real files, real processes and real disks; and the place they are in."""
