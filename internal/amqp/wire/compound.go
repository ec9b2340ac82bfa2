package wire

// enter reads size and count of a list, map or array, and moves the end to its end. The caller
// reads count elements, then calls leave with the outer end.
func (d *decoder) enter(constructor byte) (count, outer int, err error) {
	if err := d.deeper(); err != nil {
		return 0, 0, err
	}
	at := d.at - 1
	size, err := d.length(constructor)
	if err != nil {
		return 0, 0, err
	}
	if size > d.end-d.at {
		return 0, 0, d.fail(at, "a size is larger than what there is")
	}
	outer, d.end = d.end, d.at+size
	if count, err = d.length(constructor); err != nil {
		return 0, 0, err
	}
	if d.elements -= count; d.elements < 0 {
		return 0, 0, d.fail(at, "too many elements")
	}
	return count, outer, nil
}

// enterElements is enter for lists and maps, whose elements have a byte at least.
func (d *decoder) enterElements(constructor byte) (count, outer int, err error) {
	if count, outer, err = d.enter(constructor); err == nil && count > d.end-d.at {
		err = d.fail(d.at, "a count is larger than the size allows")
	}
	return count, outer, err
}

func (d *decoder) leave(outer int) error {
	if d.at != d.end {
		return d.fail(d.at, "a size is larger than the elements need")
	}
	d.end = outer
	d.shallower()
	return nil
}

func (d *decoder) list(constructor byte) (any, error) {
	count, outer, err := d.enterElements(constructor)
	if err != nil {
		return nil, err
	}
	if count == 0 {
		return emptyList, d.leave(outer)
	}
	list := make(List, count)
	for i := range list {
		if list[i], err = d.value(); err != nil {
			return nil, err
		}
	}
	return list, d.leave(outer)
}

func (d *decoder) mapping(constructor byte) (any, error) {
	m, err := d.pairs(constructor)
	if err != nil {
		return nil, err
	}
	if len(m) == 0 {
		return emptyMap, nil
	}
	return m, nil
}

func (d *decoder) pairs(constructor byte) (Map, error) {
	count, outer, err := d.enterElements(constructor)
	if err != nil {
		return nil, err
	}
	if count%2 != 0 {
		return nil, d.fail(d.at, "a map has a key without a value")
	}
	m := make(Map, count/2)
	for i := range m {
		if m[i].Key, err = d.value(); err != nil {
			return nil, err
		}
		if m[i].Value, err = d.value(); err != nil {
			return nil, err
		}
	}
	return m, d.leave(outer)
}

func (d *decoder) array(constructor byte) (any, error) {
	count, outer, err := d.enter(constructor)
	if err != nil {
		return nil, err
	}
	descriptor, described, element, err := d.elementConstructor()
	if err != nil {
		return nil, err
	}
	switch {
	case width(element) == 0:
		if d.empty -= count; d.empty < 0 {
			return nil, d.fail(d.at, "too many elements")
		}
	case count > d.end-d.at:
		return nil, d.fail(d.at, "a count is larger than the size allows")
	}
	if count == 0 {
		return emptyArray, d.leave(outer)
	}
	array := make(Array, count)
	for i := range array {
		v, err := d.primitive(element)
		if err != nil {
			return nil, err
		}
		if described {
			v = Described{descriptor, v}
		}
		array[i] = v
	}
	return array, d.leave(outer)
}

// elementConstructor reads the constructor of an array's elements, with its descriptor if it has.
func (d *decoder) elementConstructor() (desc any, described bool, constructor byte, err error) {
	if constructor, err = d.byte(); err != nil {
		return nil, false, 0, err
	}
	if constructor == 0x00 {
		s, err := d.descriptor()
		if err != nil {
			return nil, false, 0, err
		}
		if constructor, err = d.byte(); err != nil {
			return nil, false, 0, err
		}
		if constructor == 0x00 {
			return nil, false, 0, d.fail(d.at-1, "an array of described values of described values")
		}
		desc, described = s.any(), true
	}
	if !isConstructor(constructor) {
		return nil, false, 0, d.fail(d.at-1, "an unknown constructor")
	}
	return desc, described, constructor, nil
}
