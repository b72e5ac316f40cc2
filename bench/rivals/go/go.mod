module rival

go 1.25
